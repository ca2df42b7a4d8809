"""Spatial-reduction attention (PVT: Wang et al. 2021, eq. 3 and 4): a linear map of each square of patches, and a norm,
before keys and values. Without overlap it is the paper's strided convolution."""

from flax import struct
from jax import Array

from tfm.attention.attend import Heads
from tfm.attention.kernels.choice import attention
from tfm.attention.project import Attention, attention_specs, keys_values, merge_heads, queries
from tfm.catalogue.grid import as_grid, check_whole, stacked_squares
from tfm.catalogue.options.mixers.fewer_keys import SpatialReduction
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Mixer, MixerOutput, Score, refuse_scores
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import Linear, linear, linear_specs
from tfm.sharding import replicate_length


@struct.dataclass
class ReducedAttention:
    """Projections to heads and back, the map [h,w,D,E] of a square, and the norm of what it becomes; None where a
    square is one patch."""

    attention: Attention
    reduction: Linear | None
    norm: Norm | None


def specs(options: SpatialReduction, config: Config) -> ReducedAttention:
    """The spec tree of one layer."""
    if options.factor == 1:
        return ReducedAttention(attention_specs(config), None, None)
    reduction = linear_specs(config, "hwD", "E", h=options.factor, w=options.factor)
    return ReducedAttention(attention_specs(config), reduction, norm_specs(config, "E"))


Call = LayerCall[SpatialReduction, ReducedAttention, None]


def forward(call: Call, x: Array, score: Score, state: None) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    refuse_scores(call)
    layer, config = call.params, call.config
    k, v = keys_values(layer.attention, config, _reduced(call, replicate_length(x)))
    heads = Heads(queries(layer.attention, config, x), k, v, None)
    y = attention(heads, config.kernel, config.attn_rate_with(call.key), call.key)
    return merge_heads(layer.attention, y), MixerOutput()


def _reduced(call: Call, x: Array) -> Array:
    """x [B,T,D] of a grid -> [B,S,D] of its squares, row by row."""
    layer, factor = call.params, call.options.factor
    if layer.reduction is None or layer.norm is None:
        return x
    assert call.config.grid is not None, "the options see to it that there is a grid"
    x = stacked_squares(as_grid(x, *call.config.grid), factor, factor)
    return norm(call.config, layer.norm, linear(layer.reduction, "BShwD,hwDE->BSE", x))


MIXER = Mixer(specs, check_whole, forward)
