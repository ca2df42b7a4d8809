"""A global input beside the text, and labels of relative positions (ETC: Ainslie et al. 2020, sections 3.1 and 3.2)."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.bias import FollowingBias, ScoreBias
from tfm.attention.context import LayerCall
from tfm.config.model import Config
from tfm.config.patterns import Etc
from tfm.masks.distance import causal, window
from tfm.masks.mask import Mask
from tfm.masks.place import global_tokens
from tfm.ops import lookup
from tfm.params import weight_spec
from tfm.patterns import Pattern, text_starts
from tfm.sharding import take_positions, unshard_fsdp


def mask(options: Etc, config: Config, is_causal: bool) -> Mask:
    """The four pieces: global and long tokens among themselves, and for each other; only long to long is sparse."""
    radius = window(options.radius, 0 if is_causal else options.radius)
    pattern = radius | global_tokens(options.tokens)
    return causal() & pattern if is_causal else pattern


def specs(options: Etc, config: Config) -> Array | None:
    """A bias for each label and head [r,K,G], where there are labels."""
    return weight_spec(config, "rKG", r=4 * options.labels + 4) if options.labels else None


def bias(call: LayerCall, bias: ScoreBias | None) -> ScoreBias | None:
    """That of the labels, after that of positions."""
    if call.params is None:
        return bias
    starts = text_starts(call.prepared) if call.prepared.restarts else None
    return LabelBias(bias, unshard_fsdp(call.params)[None], starts, call.options.tokens, call.options.labels)


@struct.dataclass
class LabelBias(FollowingBias):
    """A bias of the label of each pair of tokens, table [1,r,K,G], after another bias.

    Labels are clipped distances: one set among long tokens, one among global ones; and one label each for long tokens
    that see global ones and for global tokens that see long ones.
    """

    table: Array
    starts: Array | None
    tokens: int = struct.field(pytree_node=False)
    labels: int = struct.field(pytree_node=False)

    batched = True

    def change(self, scores, i, j):  # noqa: D102
        return scores + jnp.einsum("BTSKG->BKGTS", lookup(self.table[0], self.label(self._place(i), self._place(j))))

    def label(self, i: Array, j: Array) -> Array:
        """Places i [B,T] and j [B,S] in their texts -> labels [B,T,S]."""
        i, j = i[:, :, None], j[:, None, :]
        distance = jnp.clip(j - i, -self.labels, self.labels) + self.labels
        count = 2 * self.labels + 1
        of_global = jnp.where(j < self.tokens, count + distance, 2 * count)
        return jnp.where(i < self.tokens, of_global, jnp.where(j < self.tokens, 2 * count + 1, distance))

    def _place(self, positions: Array) -> Array:
        """Positions -> their places in their texts."""
        if self.starts is None:
            return positions
        starts = self.starts if self.starts.shape[1] == 1 else take_positions(self.starts, positions)
        return positions - starts


PATTERN = Pattern(mask, specs=specs, bias=bias)
