"""A sliding window, which may be dilated, in all heads or in some (Beltagy et al. 2020, section 3.1).

Where heads differ, kernels visit what any head may see, and a bias forbids the rest in each head.
"""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.bias import FollowingBias, ScoreBias
from tfm.catalogue.options.patterns import Sliding
from tfm.config.model import Config
from tfm.interfaces import LayerCall
from tfm.masks.distance import strided, window
from tfm.masks.mask import MASK_VALUE, Mask
from tfm.patterns import Pattern


def mask(options: Sliding, config: Config, is_causal: bool) -> Mask:
    """The window to the left, or to both sides; of several windows all that any head may see."""
    dilated = _window(options.window, options.dilation, is_causal)
    return dilated if options.dilated_heads is None else _window(options.window, 1, is_causal) | dilated


def _window(size: int, dilation: int, is_causal: bool) -> Mask:
    """A window of `size` tokens, `dilation` apart."""
    left, right = (size - 1, 0) if is_causal else (size // 2, size // 2)
    dense = window(left * dilation, right * dilation)
    return dense if dilation == 1 else dense & strided(dilation)


@struct.dataclass
class HeadWindows(FollowingBias):
    """Windows without gaps in all heads but the last ones, after another bias."""

    local: Mask
    dilated: Mask
    kv_heads: int = struct.field(pytree_node=False)
    groups: int = struct.field(pytree_node=False)
    dilated_heads: int = struct.field(pytree_node=False)

    def change(self, scores, i, j):
        heads = jnp.arange(self.kv_heads * self.groups).reshape(1, self.kv_heads, self.groups, 1, 1)
        is_dilated = heads >= self.kv_heads * self.groups - self.dilated_heads
        local, dilated = (mask(i, j)[:, None, None] for mask in (self.local, self.dilated))
        return scores + jnp.where((is_dilated & dilated) | (~is_dilated & local), 0.0, MASK_VALUE)


def bias(call: LayerCall, q: Array, bias: ScoreBias | None) -> ScoreBias | None:
    """The windows of heads where they differ, after the bias of positions."""
    options, sizes = call.options, call.config.sizes
    if options.dilated_heads is None:
        return bias
    local, dilated = (_window(options.window, step, call.prepared.causal) for step in (1, options.dilation))
    return HeadWindows(bias, local, dilated, sizes["K"], sizes["G"], options.dilated_heads)


PATTERN = Pattern(mask, bias=bias)
