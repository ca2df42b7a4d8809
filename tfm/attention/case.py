"""The case that a kernel must handle, and the reasons that all kernels share for not handling it."""

import math
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tfm.attention.bias import ScoreBias
from tfm.masks.distance import Window, as_window
from tfm.masks.mask import Mask
from tfm.sharding import mesh_axes, spec_of


class MaskParts(NamedTuple):
    """Masks that together allow what a mask allows: the static pattern, a mask of segments, masks of keys alone, and
    the others."""

    pattern: Mask = Window(None, None)
    segments: Mask | None = None
    keys: tuple[Mask, ...] = ()
    rest: tuple[Mask, ...] = ()


class Case(NamedTuple):
    """What the choice of a kernel depends on.

    platform, version: cpu, gpu or tpu; a GPU's compute capability
    dtype, head_size: of the queries
    queries, keys: lengths
    scores: scores that one device computes
    mask_elements: elements of the mask as an array [B or 1,T,S] on one device
    mask, bias, rate: the parts of the mask, the bias, the dropout rate of attention weights
    sharded_batch, sharded_length, sharded_heads: whether the mesh shards this axis of queries or keys
    """

    platform: str
    version: float
    dtype: str
    head_size: int
    queries: int
    keys: int
    scores: int
    mask_elements: int
    mask: MaskParts
    bias: ScoreBias | None
    rate: float
    sharded_batch: bool
    sharded_length: bool
    sharded_heads: bool


def case_of(q: Any, k: Any, mask: Mask | None, bias: ScoreBias | None, rate: float, platform: str) -> Case:
    """The case of q [B,T,K,G,H] and k [B,S,K,H], arrays or shapes with a dtype; platform is cpu, tpu or, for example,
    "gpu 9.0"."""
    family, _, version = platform.partition(" ")
    spec = spec_of(q)
    batch, length, *heads, _ = (bool(mesh_axis) for mesh_axis in spec)
    mesh = jax.typeof(q).sharding.mesh
    shards = math.prod(mesh.shape[name] for name in mesh_axes(spec))
    return Case(
        platform=family,
        version=float(version) if version.replace(".", "", 1).isdigit() else 0.0,
        dtype=str(jnp.dtype(q.dtype)),
        head_size=q.shape[-1],
        queries=q.shape[1],
        keys=k.shape[1],
        scores=math.prod(q.shape[:-1]) * k.shape[1] // shards,
        mask_elements=_mask_elements(q, k.shape[1], mask),
        mask=decompose(mask),
        bias=bias,
        rate=rate,
        sharded_batch=batch,
        sharded_length=length or bool(spec_of(k)[1]),
        sharded_heads=any(heads),
    )


def _mask_elements(q: Any, keys: int, mask: Mask | None) -> int:
    """The elements of a mask as an array on one device, for queries [B,T,K,G,H]; all rows share a static one."""
    mesh, rows = jax.typeof(q).sharding.mesh, spec_of(q)[:1]
    shards = math.prod(mesh.shape[name] for name in mesh_axes(rows))
    return (1 if mask is None or mask.is_static else q.shape[0] // shards) * q.shape[1] * keys


def decompose(mask: Mask | None) -> MaskParts:
    """The parts of a mask, for kernels that know some of them. Windows become one; a second mask of segments is part of
    the rest."""
    conjuncts = () if mask is None else mask.conjuncts
    static = [part for part in conjuncts if part.is_static] or [Window(None, None)]
    pattern = reduce(and_, static)
    arrays = [part for part in conjuncts if not part.is_static]
    with_ids = [part for part in arrays if part.segment_ids is not None]
    without_ids = [part for part in arrays if part.segment_ids is None]
    return MaskParts(
        pattern=as_window(pattern) or pattern,
        segments=with_ids[0] if with_ids else None,
        keys=tuple(part for part in without_ids if part.key_only),
        rest=(*(part for part in without_ids if not part.key_only), *with_ids[1:]),
    )


def why_not_blocks(case: Case) -> str:
    """Why no kernel can compute this attention block by block and shard by shard; empty if one can."""
    if case.sharded_length:
        return "the length is sharded"
    if not all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves((case.mask, case.bias))):
        return "the mask or the bias is no pytree of arrays; make its class a flax.struct.dataclass"
    masks = [mask for mask in (case.mask.segments, *case.mask.keys, *case.mask.rest) if mask is not None]
    if (case.sharded_batch or case.sharded_heads) and not all(mask.shardable for mask in masks):
        return "the batch is sharded, and a mask with arrays does not say shardable=True"
    return "" if case.bias is None else _why_not_bias(case, case.bias)


def why_not_fused(case: Case) -> str:
    """Why no fused kernel can compute this attention; empty if it may."""
    if case.bias is not None:
        return "a bias is added to the scores"
    if case.rate:
        return f"attention weights are dropped (at {case.rate:g}), which only einsum and chunked do"
    return why_not_blocks(case)


def _why_not_bias(case: Case, bias: ScoreBias) -> str:
    """Why no kernel can compute this bias block by block and shard by shard; empty if one can."""
    if not bias.blockwise:
        return "the bias is computed for all positions at once"
    if bias.adds_values:
        return "the bias adds a term to the weighted sum of values, which only einsum computes"
    if case.sharded_heads:
        return "heads are sharded, and the bias is not"
    return ""
