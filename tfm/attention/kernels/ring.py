"""Ring attention (Liu et al. 2023): on a mesh that shards the length, keys and values travel around `context`.

Each device has the queries of its part of the length, and the keys and values of one part at a time, beginning with its
own. While it computes with these, the next ones arrive from its neighbour. Softmax is computed block by block (Milakov
and Gimelshein 2018). The backward pass goes around once more: gradients of keys and values travel with them, and come
home. So a device never holds all keys, which the einsum gathers.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec, reshard

from tfm.attention.attend import attend, check_attention
from tfm.attention.kernels.case import Case
from tfm.masks.mask import MASK_VALUE, Mask
from tfm.sharding import spec_of


class Ring(NamedTuple):
    """The mesh axis around which blocks travel, and its size."""

    axis: str
    size: int

    def next(self, blocks: tuple[Array, Array]) -> tuple[Array, Array]:
        """The blocks of the neighbour."""
        pairs = [(device, (device - 1) % self.size) for device in range(self.size)]
        return jax.lax.ppermute(blocks, self.axis, pairs)

    def scores(self, q: Array, k: Array, mask: Mask | None, step: int) -> Array:
        """q [B,T,K,G,H], and the k [B,S,K,H] that are here after `step` steps -> masked scores float32 [B,K,G,T,S]."""
        scores = jnp.einsum("BTKGH,BSKH->BKGTS", q, k, preferred_element_type=jnp.float32)
        if mask is None:
            return scores
        device, queries, keys = jax.lax.axis_index(self.axis), q.shape[1], k.shape[1]
        i = device * queries + jnp.arange(queries)
        j = (device + step) % self.size * keys + jnp.arange(keys)
        return jnp.where(mask(i[None], j[None])[:, None, None], scores, MASK_VALUE)


def ring(q: Array, k: Array, v: Array, mask: Mask | None = None, bias: None = None) -> Array:
    """q [B,T,K,G,H], k [B,S,K,H], v [B,S,K,h] -> [B,T,K,G,h]; softmax in float32. There is no bias. Where no mesh axis
    shards the length of q, it is `attend`. Raises ValueError for shapes that do not fit."""
    check_attention(q, k, v, mask)
    rows, axis, heads, *_ = spec = spec_of(q)
    if axis is None:
        return attend(q, k, v, mask)

    def of_mask(leaf: Array) -> PartitionSpec:
        return PartitionSpec(rows if leaf.ndim and leaf.shape[0] == len(q) else None)

    of_keys = PartitionSpec(rows, axis, heads, None)
    specs = PartitionSpec(*spec), of_keys, of_keys, jax.tree.map(of_mask, mask)
    operands = jax.tree.map(reshard, (q, k, v, mask), specs)
    mesh = jax.typeof(q).sharding.mesh
    run = partial(_attend, Ring(axis, mesh.shape[axis]))
    return jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=specs[0], check_vma=False)(*operands)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(axis_ring: Ring, q: Array, k: Array, v: Array, mask: Mask | None) -> Array:
    """The part of one device."""
    return _forward(axis_ring, q, k, v, mask)[0]


def _forward(axis_ring: Ring, q: Array, k: Array, v: Array, mask: Mask | None):
    """Heads [B,T,K,G,h], and what the backward pass reads: the inputs, the heads, and the logarithm of the sums of
    exponentials, float32 [B,K,G,T]."""
    scaled, blocks = q * q.shape[-1] ** -0.5, (k, v)
    shape = len(q), *q.shape[2:4], q.shape[1]
    top, mass, y = jnp.full(shape, MASK_VALUE), jnp.zeros(shape), jnp.zeros((*shape, v.shape[-1]))
    for step in range(axis_ring.size):
        following = axis_ring.next(blocks) if step + 1 < axis_ring.size else blocks
        scores = axis_ring.scores(scaled, blocks[0], mask, step)
        largest = jnp.maximum(top, scores.max(-1))
        powers, kept = jnp.exp(scores - largest[..., None]), jnp.exp(top - largest)
        part = jnp.einsum("BKGTS,BSKh->BKGTh", powers.astype(v.dtype), blocks[1], preferred_element_type=jnp.float32)
        mass, y = mass * kept + powers.sum(-1), y * kept[..., None] + part
        top, blocks = largest, following
    heads = jnp.moveaxis(y / mass[..., None], 3, 1).astype(v.dtype)
    return heads, (q, k, v, mask, heads, top + jnp.log(mass))


def _backward(axis_ring: Ring, kept, of_heads: Array):
    """Gradients for q, k and v. That for scores is p (dp - sum(p dp)), with p the weights; the sum is the product of
    heads and their gradient (Dao et al. 2022, section B.2)."""
    q, k, v, mask, heads, log_mass = kept
    scale = q.shape[-1] ** -0.5
    product = partial(jnp.einsum, preferred_element_type=jnp.float32)
    row_sums = product("BTKGh,BTKGh->BKGT", heads.astype(jnp.float32), of_heads.astype(jnp.float32))
    blocks, of_q = (k, v), jnp.zeros(q.shape)
    of_blocks = jnp.zeros(k.shape), jnp.zeros(v.shape)
    for step in range(axis_ring.size):
        following = axis_ring.next(blocks) if step + 1 < axis_ring.size else blocks
        weights = jnp.exp(axis_ring.scores(q * scale, blocks[0], mask, step) - log_mass[..., None])
        of_weights = product("BTKGh,BSKh->BKGTS", of_heads, blocks[1])
        of_scores = (weights * (of_weights - row_sums[..., None])).astype(q.dtype)
        of_q += product("BKGTS,BSKH->BTKGH", of_scores, blocks[0])
        of_k = of_blocks[0] + product("BKGTS,BTKGH->BSKH", of_scores, q * scale)
        of_v = of_blocks[1] + product("BKGTS,BTKGh->BSKh", weights.astype(v.dtype), of_heads)
        blocks, of_blocks = following, axis_ring.next((of_k, of_v))
    of_k, of_v = of_blocks
    return (of_q * scale).astype(q.dtype), of_k.astype(k.dtype), of_v.astype(v.dtype), None


_attend.defvjp(_forward, _backward)


def why_not_ring(case: Case) -> str:
    """Why ring attention cannot handle a case; empty if it can."""
    if case.bias is not None:
        return "a bias is added to the scores"
    if case.rate:
        return f"attention weights are dropped (at {case.rate:g}), which einsum, chunked and triton do"
    _, axis, _, groups, size = spec_of(case.q)
    if axis is None:
        return ""
    if not isinstance(axis, str) or groups or size:
        return "the length is sharded over several mesh axes, or the groups or the size of heads are sharded"
    if case.keys % jax.typeof(case.q).sharding.mesh.shape[axis]:
        return f"{case.keys} keys cannot be divided over {axis}"
    masks = () if case.mask is None else case.mask.conjuncts
    return "" if all(mask.shardable for mask in masks) else "a mask with arrays does not say shardable=True"
