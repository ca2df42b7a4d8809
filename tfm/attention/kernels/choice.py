"""Attention by the kernel that fits: `attention` computes it, `choose_kernel` says which kernel that is and why.

All kernels compute what `tfm.attend` does, and take what it takes; only chunks take dropout, with draws of their own. A
query that may see no key gets the mean of all values there; here it may get another mean, or zeros, but always
something finite: no loss reads such a row.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import reduce
from operator import and_
from typing import NamedTuple

import jax
from jax import Array

from tfm.attention.attend import Heads, attend
from tfm.attention.bias import ScoreBias
from tfm.attention.kernels.block_sizes import visited
from tfm.attention.kernels.blocks import attend_in_blocks
from tfm.attention.kernels.case import Case, Shaped, why_not_blocks
from tfm.attention.kernels.chunked import chunked
from tfm.attention.kernels.cudnn import cudnn, knows, why_not_cudnn
from tfm.attention.kernels.ring import ring, why_not_ring
from tfm.attention.kernels.splash import splash, why_not_splash
from tfm.attention.kernels.triton import triton, why_not_triton
from tfm.axes import compute_capability
from tfm.axes import platform as current_platform
from tfm.config.model import Config
from tfm.masks.mask import Mask, visible_pairs
from tfm.options.choices import choices_of
from tfm.options.errors import suggest
from tfm.sharding import shards_of

__all__ = ["Choice", "KernelError", "attention", "choose_kernel", "chunked", "cudnn", "splash", "triton"]

# What `choose_kernel` and `choose_once` choose from.
KERNELS: dict[str, Callable[..., Array]] = {
    "einsum": attend,
    "chunked": chunked,
    "cudnn": cudnn,
    "splash": splash,
    "triton": triton,
    "ring": ring,
    "blocks": attend_in_blocks,
}
FUSED = {"gpu": "cudnn", "tpu": "splash"}

# From this many scores of a layer on one device on, they are not computed all at once unless a fused kernel does it: on
# a CPU for speed (M8: 0.55 of a step), elsewhere for memory alone (2^28 scores are 1 GB).
LARGE = {"cpu": 1 << 20}
LARGE_ELSEWHERE = 1 << 28

# Elsewhere than on a CPU, chunks are taken for fewer scores too where they compute at most this fraction of them.
SPARSE = 0.5

# From this many scores of a pass that runs once on, they are computed for a block of queries at a time.
LARGE_ONCE = 1 << 24

# With fewer keys than these, chunks are slower on a CPU (M9).
LONG = {"cpu": 256}

# M10: cuDNN reads a bias, and a mask that it does not know, as an array, of at most 2^28 elements: 0.5 GB in bfloat16,
# and as much for its gradient. Lengths are multiples of this; others have not been measured. Chunks are taken
# instead where they compute at most this fraction of the scores.
LARGE_MASK, MASK_TILE, SPARSE_MASK = 1 << 28, 128, 1 / 16


# Why a kernel cannot handle a case, empty if it can; the einsum handles every case.
WHY_NOT: dict[str, Callable[[Case], str]] = {
    "chunked": why_not_blocks,
    "cudnn": why_not_cudnn,
    "splash": why_not_splash,
    "triton": why_not_triton,
    "ring": why_not_ring,
}


class KernelError(ValueError):
    """A kernel was asked for that cannot handle the case."""


class Choice(NamedTuple):
    """The name of a kernel, and the reason for it."""

    name: str
    reason: str


def attention(heads: Heads, kernel: str | None = "auto", rate: float = 0.0, key: Array | None = None) -> Array:
    """Heads -> [B,T,K,G,H] by a kernel of `Config.kernel`; `rate` and `key` drop attention weights.

    Without a kernel it is for a pass that runs once, such as reading a prompt: no fused kernel is compiled for it, and
    many scores are not computed at once. The kernel, its reason and the part of the pairs that the mask leaves are the
    name of a scope in the program, where profiles and the trainer read them.
    """
    case = heads.q, heads.k, heads.mask, heads.bias, rate
    choice = choose_once(*case) if kernel is None else choose_kernel(*case, kernel)
    dropout = (rate, key) if rate else ()
    with attention_scope(choice, heads):
        return KERNELS[choice.name](*heads, *dropout)


def attention_scope(choice: Choice, heads: Heads) -> AbstractContextManager[None]:
    """The scope of attention: its kernel, the reason, and what part of the pairs the mask leaves, if not all."""
    visible, pairs = visible_pairs(heads.mask, heads.q.shape[1], heads.k.shape[1])
    part = f"[{visible}/{pairs} pairs]" if visible < pairs else ""
    return jax.named_scope(f"attention[{choice.name}: {choice.reason}]{part}")


def choose_kernel(
    q: Shaped,
    k: Shaped,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    rate: float = 0.0,
    kernel: str = "auto",
    platform: str = "",
) -> Choice:
    """The kernel for q [B,T,K,G,H] and k [B,S,K,H], arrays or shapes with a dtype, and the reason in words.

    `rate` is the dropout rate of attention weights, `kernel` a name to force. `platform` is cpu, tpu, or gpu with its
    compute capability, as in "gpu 9.0"; by default, that of the current mesh. Raises KernelError, a ValueError, if a
    forced kernel cannot handle the case.
    """
    case = _case(q, k, mask, bias, rate, platform)
    if kernel == "auto":
        return _choose_fused(case) if case.platform in FUSED else _choose_unfused(case)
    if kernel not in choices_of(Config, "kernel"):
        raise KernelError(f"kernel={kernel} is unknown{suggest(kernel, choices_of(Config, 'kernel'))}")
    if kernel != "einsum" and (reason := WHY_NOT[kernel](case)):
        raise KernelError(f"kernel={kernel} cannot do this: {reason}; leave it at auto")
    return Choice(kernel, "asked for")


def choose_once(
    q: Shaped,
    k: Shaped,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    rate: float = 0.0,
) -> Choice:
    """As `choose_kernel`, for a pass that runs once: no fused kernel that takes long to compile, and blocks of queries
    where chunks cannot do it."""
    case = _case(q, k, mask, bias, rate, "")
    choice = _choose_fused(case) if case.platform == "gpu" else _choose_unfused(case)
    if choice.name == "einsum" and case.scores >= LARGE_ONCE and not case.sharded_length:
        return Choice("blocks", choice.reason)
    return choice


def _case(
    q: Shaped,
    k: Shaped,
    mask: Mask | None,
    bias: ScoreBias | None,
    rate: float,
    platform: str,
) -> Case:
    """The case on a platform; by default, on that of the current mesh."""
    if not platform and (platform := current_platform()) == "gpu":
        platform = f"gpu {_compute_capability()}"
    family, _, version = platform.partition(" ")
    scores = math.prod(q.shape[:-1]) * k.shape[1] // shards_of(q)
    is_known = version.replace(".", "", 1).isdigit()
    return Case(q, k, mask, bias, rate, scores, family, float(version) if is_known else 0.0)


def _compute_capability() -> str:
    """That of the GPU of the current mesh, or of this machine."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return compute_capability(device) or compute_capability(jax.local_devices()[0])


def _choose_fused(case: Case) -> Choice:
    """The fused kernel of the platform if it can handle the case; else the choice between einsum and chunks, with the
    reason."""
    fused = FUSED[case.platform]
    reason = WHY_NOT[fused](case)
    if not reason and (fused != "cudnn" or (case.bias is None and knows(case.parts))):
        return Choice(fused, f"it is made for a {case.platform} and knows this mask")
    if not reason and not (reason := _why_not_array(case)):
        return Choice(fused, f"it reads this {_array_of(case)} as an array")
    name, unfused = _choose_unfused(case)
    return Choice(name, f"{reason}; {unfused}")


def _choose_unfused(case: Case) -> Choice:
    """Einsum for few scores, else chunks where they can handle the case."""
    large, long = LARGE.get(case.platform, LARGE_ELSEWHERE), LONG.get(case.platform, 0)
    if case.platform not in LARGE and not why_not_blocks(case) and (fraction := _visited(case)) <= SPARSE:
        return Choice("chunked", f"the mask leaves {fraction:.0%} of the blocks of scores")
    if case.scores < large:
        return Choice("einsum", f"less than {large:,} scores a layer")
    if case.keys < long:
        return Choice("einsum", f"less than {long} keys")
    if reason := why_not_blocks(case):
        return Choice("einsum", f"{large:,} scores a layer or more, but {reason}")
    return Choice("chunked", f"{large:,} scores a layer or more")


def _visited(case: Case) -> float:
    """The fraction of all pairs that chunks compute for a case, if rows hold one text each. Static."""
    parts = case.parts
    masks = [part.in_one_text for part in (parts.pattern, parts.segments, *parts.rest) if part is not None]
    heads, pairs = case.scores, max(case.queries * case.keys, 1)
    q = jax.ShapeDtypeStruct((1, case.queries, max(heads // pairs, 1), 1, case.q.shape[-1]), case.q.dtype)
    return visited(q, case.keys, reduce(and_, [part for part in masks if part.is_static]), case.platform)


def _array_of(case: Case) -> str:
    """What cuDNN reads as an array."""
    return "mask" if case.bias is None else "bias"


def _why_not_array(case: Case) -> str:
    """Why cuDNN should not read the mask or the bias of a case as an array; empty if it should."""
    reading = f"cudnn would read this {_array_of(case)} as an array"
    if case.queries % MASK_TILE or case.keys % MASK_TILE:
        return f"{reading}, and lengths are no multiples of {MASK_TILE}"
    is_one = (case.mask is None or case.mask.is_static) and not (case.bias is not None and case.bias.batched)
    rows = 1 if is_one else case.q.shape[0] // shards_of(case.q, axes=1)
    heads = 1 if case.bias is None else math.prod(case.q.shape[2:4])
    elements = rows * heads * case.queries * case.keys  # on one device
    if elements > LARGE_MASK:
        return f"{reading} of {elements:,} elements"
    if not why_not_blocks(case) and _visited(case) <= SPARSE_MASK:
        return "cudnn would compute all scores"
    return ""
