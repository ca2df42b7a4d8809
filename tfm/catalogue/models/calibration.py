"""Parameters of residual schemes that are set by one pass over a batch, before training."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array

from tfm.catalogue.residuals.profile import Profile
from tfm.config.layers import Kind
from tfm.config.model import Config
from tfm.inputs import default_positions
from tfm.interfaces import AttentionContext, Block, LayerCall, Memory
from tfm.layers.block import block_specs, sublayers_of
from tfm.layers.groups import unstack
from tfm.layers.stack import Layers, by_layer, prepare_layers
from tfm.models.encoder import Encoder, encoder
from tfm.models.seq2seq import Seq2Seq, cross_keys_values, decoder_of, encoder_config
from tfm.params import PyTree
from tfm.residuals import Sublayer, SublayerOutput
from tfm.sharding import scatter_sequence
from tfm.tables.calibrations import CALIBRATIONS
from tfm.tables.inputs import embed
from tfm.tables.residuals import RESIDUALS


def needs_calibration(config: Config) -> bool:
    """Whether a residual scheme of the model is set by a batch."""
    return any(kind.residual.name in CALIBRATIONS for kind in config.kinds)


def calibrate(params: PyTree, config: Config, inputs: Array, target: Array | None = None) -> PyTree:
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


def _calibrated(model: Encoder, config: Config, inputs: Array, causal: bool, memory: Memory | None = None) -> Encoder:
    """One stack."""
    x = embed(model.embed, config, inputs)
    context = AttentionContext(default_positions(x), causal=causal)
    context = prepare_layers(context, config, model.positions, memory)
    blocks, plan = _rows(config, model.layers), config.layer_plan
    kinds = [*plan.prefix, *plan.period * plan.times, *plan.tail]
    memories = [None] * len(kinds) if memory is None else by_layer(config, memory.layers)
    branches, stream = [], scatter_sequence(x)
    for block, kind, keys_values in zip(blocks, kinds, memories, strict=True):
        stream, of_layer = _with_branches(block, kind, config, stream, context, keys_values)
        branches.append(of_layer)
    profile = Profile(x, branches, [block_specs(kind, config, memory is not None) for kind in kinds])
    for options in dict.fromkeys(kind.residual for kind in kinds if kind.residual.name in CALIBRATIONS):
        calibrated = CALIBRATIONS[options.name](options, config, blocks, profile)
        blocks = [
            new if kind.residual == options else block
            for block, new, kind in zip(blocks, calibrated, kinds, strict=True)
        ]
    return replace(model, layers=_stacked(config, blocks))


def _with_branches(
    block: Block,
    kind: Kind,
    config: Config,
    x: Array,
    context: AttentionContext,
    keys_values: tuple[Array, Array] | None,
) -> tuple[Array, dict[str, Array]]:
    """x [B,T,D] -> [B,T,D] behind a block, and by name what each sublayer adds to the stream, before dropout."""
    branches: dict[str, Array] = {}

    def recorded(name: str, sublayer: Sublayer) -> Sublayer:
        def function(y: Array) -> tuple[Array, SublayerOutput]:
            branches[name], output = sublayer.function(y)
            return branches[name], output

        return sublayer._replace(function=function)

    sublayers = sublayers_of(block, kind, config, context, keys_values=keys_values)
    sublayers = {name: recorded(name, sublayer) for name, sublayer in sublayers.items()}
    call = LayerCall(kind.residual, config, block.residual, None)
    return RESIDUALS[kind.residual.name].chain(call, x, sublayers)[0], branches


def _rows(config: Config, layers: Layers) -> list[Block]:
    """The blocks of all layers in order. Raises ValueError where layers share one block."""
    if config.share_layers:
        raise ValueError(
            "share_layers=true has one block for all layers, which a batch cannot set for each; share none"
        )
    repetitions = zip(*(unstack(tree, config.layer_plan.times) for tree in layers.period), strict=True)
    return [*layers.prefix, *(block for blocks in repetitions for block in blocks), *layers.tail]


def _stacked(config: Config, blocks: Sequence[Block]) -> Layers:
    """The inverse."""
    plan = config.layer_plan
    first, size = len(plan.prefix), len(plan.period)
    end = first + plan.times * size
    period = tuple(
        jax.tree.map(lambda *rows: jnp.stack(rows), *blocks[first + index : end : size]) for index in range(size)
    )
    return Layers(tuple(blocks[:first]), period, tuple(blocks[end:]))
