"""A global input beside the text, and labels of relative positions (ETC: Ainslie et al. 2020, sections 3.1 and 3.2)."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.bias import FollowingBias, ScoreBias
from tfm.catalogue.options.patterns import Etc
from tfm.catalogue.positions.relative import ClippedBias
from tfm.config.model import Config
from tfm.interfaces import LayerCall
from tfm.masks.distance import causal, window
from tfm.masks.mask import Mask
from tfm.masks.place import global_tokens
from tfm.ops import einsum
from tfm.params import weight_spec
from tfm.patterns import Pattern, text_starts
from tfm.sharding import shard_axis, spec_of, take_positions


def mask(options: Etc, config: Config, is_causal: bool) -> Mask:
    """The four pieces: global and long tokens among themselves, and for each other; only long to long is sparse."""
    radius = window(options.radius, 0 if is_causal else options.radius)
    pattern = radius | global_tokens(options.tokens)
    return causal() & pattern if is_causal else pattern


def specs(options: Etc, config: Config) -> Array | None:
    """A vector for each label [r,H], shared by the heads of a layer, where there are labels."""
    return weight_spec(config, "rH", r=4 * options.labels + 4) if options.labels else None


def bias(call: LayerCall, q: Array, bias: ScoreBias | None) -> ScoreBias | None:
    """The scores of queries [B,T,K,G,H] and labels, after the bias of positions."""
    options, context = call.options, call.prepared
    if call.params is None:
        return bias
    scores = einsum("BTKGH,rH->BTKGr", q * q.shape[-1] ** -0.5, call.params, jnp.float32)
    count = 2 * options.labels + 1
    of_long, of_global, to_long, to_global = jnp.split(scores, (count, 2 * count, 2 * count + 1), axis=-1)
    places = shard_axis(context.positions, spec_of(q)[1])
    is_global = (places < options.tokens)[:, :, None, None, None]
    same, mixed = jnp.where(is_global, of_global, of_long), jnp.where(is_global, to_long, to_global)
    return LabelBias(bias, same, mixed, text_starts(context) if context.restarts else None, options.tokens)


@struct.dataclass
class LabelBias(FollowingBias):
    """The scores q_i a_l / sqrt(H) with the vector a of the label l of each pair of tokens, after another bias (Ainslie
    et al. 2020, section 3.1; the vectors are as those of Shaw et al. 2018, eq. 4).

    Labels of two long tokens, and of two global ones, are clipped distances; a long token that sees a global one has
    one label, and a global token that sees a long one.

    same: [B,T,K,G,r], the scores of each query with its labels for tokens of its own kind
    mixed: [B,T,K,G,1], that with its label for tokens of the other kind
    """

    same: Array
    mixed: Array
    starts: Array | None
    tokens: int = struct.field(pytree_node=False)

    batched = True

    def change(self, scores, i, j):
        same, mixed = self.same, self.mixed
        if i.shape[1] != same.shape[1]:  # a block of queries
            same, mixed = take_positions(same, i), take_positions(mixed, i)
        of_distances = ClippedBias(same, False, jnp.eye(same.shape[-1]))(i, j)
        global_i, global_j = self._place(i) < self.tokens, self._place(j) < self.tokens
        is_same = (global_i[:, :, None] == global_j[:, None, :])[:, None, None]
        return scores + jnp.where(is_same, of_distances, jnp.moveaxis(mixed, 1, 3))

    def _place(self, positions: Array) -> Array:
        """Positions -> their places in their texts."""
        if self.starts is None:
            return positions
        starts = self.starts if self.starts.shape[1] == 1 else take_positions(self.starts, positions)
        return positions - starts


PATTERN = Pattern(mask, specs=specs, bias=bias)
