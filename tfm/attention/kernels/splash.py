"""The splash attention of jax's Pallas kernels, for TPUs: it skips blocks that a static mask forbids."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AbstractMesh, use_abstract_mesh

from tfm.attention.bias import ScoreBias
from tfm.attention.kernels.case import Case, why_not_fused
from tfm.attention.kernels.shards import on_shards
from tfm.masks.distance import MaskParts, as_window, decompose
from tfm.masks.mask import Mask

# Splash attention takes lengths that are multiples of this.
LANES = 128

# The segment of keys that no query may see.
NO_SEGMENT = jnp.iinfo(jnp.int32).min


def splash(
    q: Array, k: Array, v: Array, mask: Mask | None = None, bias: ScoreBias | None = None, interpret: bool = False
) -> Array:
    """q [B,T,K,G,H], k and v [B,S,K,H] -> [B,T,K,G,H]: any static pattern & segments & padding; there is no bias.

    Padding is a segment without queries. `interpret` runs the kernel on a CPU, slowly.
    """
    pattern = pallas_mask(decompose(mask).pattern, q.shape[1], k.shape[1])
    return _splash(q, k, v, mask, bias, pattern=pattern, interpret=interpret)


@on_shards
def _splash(q: Array, k: Array, v: Array, mask: Mask | None, bias: None, pattern: Any, interpret: bool) -> Array:
    """The kernel on the rows and heads of one device."""
    from jax.experimental.pallas.ops.tpu import splash_attention as pallas

    batch, queries, _, groups, size = q.shape
    keys = k.shape[1]
    block_q, block_k = (next(size for size in (512, 256, LANES) if length % size == 0) for length in (queries, keys))
    blocks = pallas.BlockSizes(block_q, block_k, block_k, block_q, block_k, block_k, block_q, block_k)
    kernel = pallas.make_splash_mqa_single_device(
        pallas.MultiHeadMask([pattern] * groups), block_sizes=blocks, interpret=interpret
    )
    over_heads = jax.vmap(kernel, in_axes=(0, 0, 0, None))
    ids = segment_ids(decompose(mask), batch, queries, keys)
    y = jax.vmap(over_heads)(
        jnp.moveaxis(q * size**-0.5, 1, -2),
        jnp.moveaxis(k, 1, -2),
        jnp.moveaxis(v, 1, -2),
        None if ids is None else pallas.SegmentIds(*ids),
    )
    return jnp.moveaxis(y, -2, 1)


def pallas_mask(pattern: Mask, queries: int, keys: int) -> Any:
    """A static mask as splash attention takes it: a window that the kernel computes by itself, else an array.

    Splash attention refuses a query without keys; in the array such a query sees all keys.
    """
    from jax.experimental.pallas.ops.tpu import splash_attention as pallas

    window, shape = as_window(pattern), (queries, keys)
    if window is not None and window.left is None and window.right is None:
        return pallas.FullMask(shape)
    if window is not None and pattern.blocks(1, keys, queries, keys).all():
        return pallas.LocalMask(shape, (window.left, window.right), 0)
    allowed = static_dense(pattern, queries, keys)
    return pallas.NumpyMask(allowed | ~allowed.any(1, keepdims=True))


def static_dense(pattern: Mask, queries: int, keys: int) -> np.ndarray:
    """A static mask of all positions, bool [T,S], in numpy even while jax traces."""
    with jax.ensure_compile_time_eval(), use_abstract_mesh(AbstractMesh((), ())):
        i: Any = np.arange(queries, dtype=np.int32)[None]
        j: Any = np.arange(keys, dtype=np.int32)[None]
        return np.broadcast_to(np.asarray(pattern(i, j))[0], (queries, keys))


def segment_ids(mask: MaskParts, batch: int, queries: int, keys: int) -> tuple[Array, Array] | None:
    """Segments of queries [B,T] and keys [B,S]; None where a mask has neither segments nor padding."""
    if mask.segments is None and not mask.keys:
        return None
    of_queries, of_keys = jnp.zeros((batch, queries), jnp.int32), jnp.zeros((batch, keys), jnp.int32)
    for part in (mask.segments, *mask.rest):
        ids = None if part is None else part.segment_ids
        if ids is not None:
            of_queries, of_keys = _join_ids((of_queries, of_keys), ids)
    i, j = jnp.zeros((1, 1), jnp.int32), jnp.arange(keys)[None]
    for part in mask.keys:
        of_keys = jnp.where(part(i, j)[:, 0], of_keys, NO_SEGMENT)
    return of_queries, of_keys


def _join_ids(ids: tuple[Array, Array], ids2: tuple[Array, Array]) -> tuple[Array, Array]:
    """Ids of queries [B,T] and keys [B,S], and others of one row or B -> ids that are equal where both are."""
    count = ids[0].shape[1]
    first = jnp.concatenate(ids, axis=1)
    second = jnp.broadcast_to(jnp.concatenate(ids2, axis=1), first.shape)
    places = jnp.broadcast_to(jnp.arange(first.shape[1])[None], first.shape)
    first, second, places = jax.lax.sort((first, second, places), num_keys=2)
    is_new = (jnp.diff(first) != 0) | (jnp.diff(second) != 0)
    ranks = jnp.pad(jnp.cumsum(is_new.astype(jnp.int32), axis=1), ((0, 0), (1, 0)))
    ranks = jax.lax.sort((places, ranks), num_keys=1)[1]
    return ranks[:, :count], ranks[:, count:]


def why_not_splash(case: Case) -> str:
    """Why splash attention cannot handle a case; empty if it can."""
    if case.platform != "tpu":
        return f"splash needs a TPU, and this is {case.platform}"
    if case.q.dtype not in ("bfloat16", "float32"):
        return f"splash knows bfloat16 and float32, and this is {jnp.dtype(case.q.dtype)}"
    if case.queries % LANES or case.keys % LANES:
        return f"for splash lengths must be multiples of {LANES}, and they are {case.queries} and {case.keys}"
    rest = [part for part in case.parts.rest if part.segment_ids is None]
    if any(part.in_one_text.is_static for part in rest):
        return "splash knows patterns that are the same in all rows, and this one begins anew with each text of a row"
    if rest:
        return "splash knows static patterns, padding and segments joined by &, and this mask has other parts"
    return why_not_fused(case)
