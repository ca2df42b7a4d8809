"""One pass over a batch for models whose residual scheme asks for it."""

from dataclasses import replace
from typing import Any

from jax import Array

from tfm.config.model import Config
from tfm.inputs import default_positions
from tfm.interfaces import AttentionContext
from tfm.layers.calibration import calibrate_layers, needs_calibration
from tfm.models.encoder import Encoder, encoder
from tfm.models.seq2seq import Seq2Seq, cross_keys_values, decoder_of, encoder_config
from tfm.tables.inputs import embed


def calibrate(params: Any, config: Config, inputs: Array, target: Array | None = None) -> Any:
    """The parameters of a model, those of its residual scheme set by a batch: tokens [B,T] or pixels [B,H,W,C], and of
    a translation, target [B,T].

    Other models are returned as they are. Dropout is off; padding is read as tokens.
    """
    if not needs_calibration(config):
        return params
    if isinstance(params, Seq2Seq):
        source_config = encoder_config(config)
        source = _calibrated(params.encoder, source_config, inputs, causal=False)
        decoder = decoder_of(replace(params, encoder=source))
        memory = cross_keys_values(decoder, config, encoder(source, source_config, inputs))
        decoder = _calibrated(decoder, config, inputs if target is None else target, causal=True, memory=memory)
        return replace(params, encoder=source, decoder=replace(decoder, embed=params.decoder.embed))
    name = "decoder" if hasattr(params, "decoder") else "encoder"
    return replace(params, **{name: _calibrated(getattr(params, name), config, inputs, name == "decoder")})


def _calibrated(model: Encoder, config: Config, inputs: Array, causal: bool, memory: Any = None) -> Encoder:
    """One stack."""
    x = embed(model.embed, config, inputs)
    context = AttentionContext(default_positions(x), causal=causal)
    return replace(model, layers=calibrate_layers(model, config, x, context, memory))
