"""Dropout of attention weights by a hash of their positions, the same for every order and size of blocks.

`jax.random` draws whole arrays, and a draw takes many times as long as the score that it drops (M47).
"""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import PartitionSpec

from tfm.hashing import mix, threshold


@struct.dataclass
class WeightDropout:
    """Which attention weights are zero; the others are divided by 1 - rate.

    words: uint32 [2], drawn from a key
    heads: uint32 [B,K,G], the place of each head in the batch
    """

    words: Array
    heads: Array
    rate: float = struct.field(pytree_node=False)

    def apply(self, weights: Array, i: Array, j: Array) -> Array:
        """weights [B,K,G,T,S] of query positions i [1,T] and key positions j [1,S] -> some of them zero, the rest
        scaled."""
        i, j = i.astype(jnp.uint32)[:, None, None], j.astype(jnp.uint32)[:, None, None, None]
        first, second = (mix(mix(self.heads ^ word)[..., None] + i)[..., None] for word in self.words)
        keep = mix(mix(first + j) ^ second) >= threshold(self.rate)
        return jnp.where(keep, weights / (1 - self.rate), 0)

    def partition(self, spec: tuple) -> "WeightDropout":
        """This tree with the `PartitionSpec` of each array, beside queries [B,T,K,G,H] that have this spec."""
        return jax.tree.unflatten(jax.tree.structure(self), (PartitionSpec(), PartitionSpec(spec[0], spec[2], spec[3])))


def weight_dropout(q: Array, rate: float, key: Array | None) -> WeightDropout | None:
    """The dropout of the attention weights of queries [B,T,K,G,H]; None without a key or a rate.

    The weights that are dropped depend on the key, and on row, head and positions of each alone; not on how q is
    sharded.
    """
    if key is None or rate == 0:
        return None
    batch, _, kv_heads, groups, _ = q.shape
    heads = jnp.arange(batch * kv_heads * groups, dtype=jnp.uint32).reshape(batch, kv_heads, groups)
    return WeightDropout(jax.random.bits(key, (2,), "uint32"), heads, rate)
