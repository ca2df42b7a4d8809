"""Attention with linear biases: scores fall with the distance (Press et al. 2022)."""

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.attention.project import Attention
from tfm.catalogue.options.positions.relative import Alibi
from tfm.interfaces import AttentionContext, LayerCall, Position


@struct.dataclass
class AlibiBias(ScoreBias):
    """See `alibi`."""

    kv_heads: int = struct.field(pytree_node=False)
    groups: int = struct.field(pytree_node=False)
    interleaved: bool = struct.field(pytree_node=False, default=False)

    def __call__(self, i, j):
        heads = slopes_of(self.kv_heads * self.groups, self.interleaved)
        slopes = jnp.asarray(heads, jnp.float32).reshape(1, self.kv_heads, self.groups, 1, 1)
        distance = jnp.abs(j[:, None, :] - i[:, :, None]).astype(jnp.float32)
        return -slopes * distance[:, None, None]


def alibi(heads: int, kv_heads: int | None = None) -> ScoreBias:
    """Scores fall linearly with the distance on both sides, in head n at the slope 2^(-8 n / heads).

    Press et al. 2022, section 3. `kv_heads` are those of k, by default as many. Raises ValueError if they do
    not divide the heads.
    """
    kv_heads = heads if kv_heads is None else kv_heads
    if kv_heads < 1 or heads < 1 or heads % kv_heads:
        raise ValueError(f"heads={heads} must be at least 1, and kv_heads={kv_heads} must divide it")
    return AlibiBias(kv_heads, heads // kv_heads)


def slopes_of(heads: int, interleaved: bool) -> np.ndarray:
    """The slope of each head.

    `interleaved`: where heads are no power of two, the slopes of the power of two below, and after them every second
    slope of the power of two above, from the first on. Source: the published code of Press et al. 2022.
    """
    power = 1 << (heads.bit_length() - 1)
    if interleaved and power < heads:
        return np.concatenate([slopes_of(power, False), slopes_of(2 * power, False)[::2][: heads - power]])
    return 2.0 ** (-8 / heads * np.arange(1, heads + 1))


def prepare(call: LayerCall[Alibi, None, None], context: AttentionContext) -> ScoreBias:
    """The bias of all layers."""
    return AlibiBias(call.config.sizes["K"], call.config.sizes["G"], call.options.slopes == "interleaved")


def score(
    call: LayerCall[Alibi, None, ScoreBias], q: Array, k: Array, projections: Attention
) -> tuple[Array, Array, ScoreBias]:
    """Queries and keys as they are, and the bias."""
    return q, k, call.prepared


POSITION = Position(prepare=prepare, score=score)
