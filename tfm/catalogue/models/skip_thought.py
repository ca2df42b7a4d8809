"""Skip-Thought: a sentence is one vector, from which two decoders write the sentences around it (Kiros et al. 2015)."""

from dataclasses import replace

from flax import struct
from jax import Array

from tfm import params
from tfm.catalogue.mixers.recurrent import ConditionedContext
from tfm.catalogue.options.reading import conditioned
from tfm.config.layers import Layer
from tfm.config.model import Config
from tfm.inputs import default_positions
from tfm.layers.stack import Layers, stack, stack_specs
from tfm.masks.by_example import padding
from tfm.models.encoder import Encoder, encoder, encoder_specs
from tfm.models.heads import check_reads_tokens
from tfm.models.pooling import pool
from tfm.norms import Norm
from tfm.ops import Linear, linear, linear_specs, split
from tfm.params import PyTree
from tfm.residuals import output_axis
from tfm.tables.inputs import embed


@struct.dataclass
class SentenceDecoder:
    """The layers of a decoder, which reads the embeddings of the encoder; see `tfm.stack`."""

    layers: Layers
    positions: tuple[PyTree, ...]
    norm: Norm | None


@struct.dataclass
class SkipThought:
    """An encoder, the decoders of the sentence before and of the one after, the map from states to embeddings that they
    share, and the bias [V] of the output, whose table is that of the tokens."""

    encoder: Encoder
    previous: SentenceDecoder
    following: SentenceDecoder
    dense: Linear
    bias: Array


def skip_thought_specs(config: Config) -> SkipThought:
    """The spec tree. Raises ValueError for layers that cannot read a vector of another text."""
    check_reads_tokens(config)
    decoder, (axis, sizes) = decoder_config(config), output_axis(config)
    return SkipThought(
        encoder=encoder_specs(config),
        previous=SentenceDecoder(**stack_specs(decoder)),
        following=SentenceDecoder(**stack_specs(decoder)),
        dense=linear_specs(config, axis, "E" if config.embed_axis == "D" else "U", bias=True, **sizes),
        bias=params.bias_spec(config, "V"),
    )


def decoder_config(config: Config) -> Config:
    """The configuration of the decoders: layers from left to right that read the vector of a sentence."""

    def condition(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        return tuple(
            replace(layer, mixer=None if layer.mixer is None else conditioned(layer.mixer)) for layer in layers
        )

    prefix, period = condition(config.prefix), condition(config.period)
    return replace(config, mixer=conditioned(config.mixer), prefix=prefix, period=period)


def sentence_vector(model: SkipThought, config: Config, tokens: Array, valid: Array, key: Array | None = None) -> Array:
    """tokens and valid [B,T] -> [B,D], pooled as `config.head.pool` says: the state that has read all tokens (Kiros
    et al. 2015, section 2.1). A key turns dropout on."""
    return pool(encoder(model.encoder, config, tokens, padding(valid), key=key), valid, config.head.pool)


def write_sentence(
    model: SkipThought, decoder: SentenceDecoder, config: Config, tokens: Array, vector: Array, key: Array | None = None
) -> Array:
    """tokens [B,T] of a neighbour, vector [B,D] of the sentence -> [B,T,U], what meets the token table to predict the
    token after each (Kiros et al. 2015, section 2.1, eq. 5 to 8). A key turns dropout on."""
    embed_key, stack_key = split(key, 2)
    x = embed(model.encoder.embed, config, tokens, key=embed_key)
    context = ConditionedContext(default_positions(x), causal=True, restarts=False, condition=vector)
    hidden = stack(decoder, decoder_config(config), x, context, key=stack_key)[0]
    return linear(model.dense, "BTD,DU->BTU", hidden)
