"""Attention kernels: `choose_kernel` says which one fits a case.

All of them compute what `tfm.attend` does, and take what it takes; only chunks take dropout, with draws of their own. A
query that may see no key gets the mean of all values there; here it may get another mean, or zeros, but always
something finite: no loss reads such a row.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from tfm.attention.bias import ScoreBias
from tfm.attention.case import Case, case_of
from tfm.attention.kernels.block_sizes import visited
from tfm.attention.kernels.chunked import chunked, why_not_chunked
from tfm.attention.kernels.cudnn import cudnn, knows, why_not_cudnn
from tfm.attention.kernels.splash import splash, why_not_splash
from tfm.axes import platform as current_platform
from tfm.config.model import Config
from tfm.masks.mask import Mask
from tfm.options.choices import choices_of, suggest

__all__ = ["Choice", "KernelError", "choose_kernel", "chunked", "cudnn", "splash"]

# From this many scores of a layer on one device on, they are not computed all at once unless a fused kernel does it: on
# a CPU for speed (M8: 0.55 of a step), elsewhere for memory alone (2^28 scores are 1 GB).
LARGE = {"cpu": 1 << 20}
LARGE_ELSEWHERE = 1 << 28

# Elsewhere than on a CPU, chunks are taken for fewer scores too where they compute at most this fraction of them.
SPARSE = 0.5

# The same for blocks of queries.
LARGE_ONCE = 1 << 24

# The same for keys. M9: with fewer keys chunks are slower on a CPU.
LONG = {"cpu": 256}

# M10: cuDNN reads a mask that it does not know as an array, of at most so many elements: 0.5 GB in bfloat16, and as
# much for a gradient that nobody reads. Lengths are multiples of this; others have not been measured. Chunks are taken
# instead where they compute at most this fraction of the scores.
LARGE_MASK, MASK_TILE, SPARSE_MASK = 1 << 28, 128, 1 / 16

# Why a kernel cannot handle a case, empty if it can; the einsum handles every case.
WHY_NOT: dict[str, Callable[[Case], str]] = {
    "chunked": why_not_chunked,
    "cudnn": why_not_cudnn,
    "splash": why_not_splash,
}
FUSED = {"gpu": "cudnn", "tpu": "splash"}


class KernelError(ValueError):
    """A kernel was asked for that cannot handle the case."""


class Choice(NamedTuple):
    """The name of a kernel, and the reason for it."""

    name: str
    reason: str


def choose_kernel(
    q: Any,
    k: Any,
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
    if kernel not in choices_of(Config, "kernel"):
        raise KernelError(f"kernel={kernel} is unknown{suggest(kernel, choices_of(Config, 'kernel'))}")
    case = case_of(q, k, mask, bias, rate, platform or _platform())
    if kernel == "auto":
        return _choose_fused(case)
    if kernel != "einsum" and (reason := WHY_NOT[kernel](case)):
        raise KernelError(f"kernel={kernel} cannot do this: {reason}; leave it at auto")
    return Choice(kernel, "asked for")


def choose_once(q: Any, k: Any, mask: Mask | None = None, bias: ScoreBias | None = None, rate: float = 0.0) -> Choice:
    """The same for a pass that runs once: no fused kernel, and blocks of queries where chunks cannot do it."""
    case = case_of(q, k, mask, bias, rate, _platform())
    choice = _choose_unfused(case)
    if choice.name == "einsum" and case.scores >= LARGE_ONCE and not case.sharded_length:
        return Choice("blocks", choice.reason)
    return choice


def _choose_fused(case: Case) -> Choice:
    """The fused kernel of the platform if it can handle the case; else the choice between einsum and chunks, with the
    reason."""
    fused = FUSED.get(case.platform)
    if fused is None:
        return _choose_unfused(case)
    reason = WHY_NOT[fused](case)
    if not reason and (fused != "cudnn" or knows(case.mask)):
        return Choice(fused, f"it is made for a {case.platform} and knows this mask")
    if not reason and not (reason := _why_not_array(case)):
        return Choice(fused, "it reads this mask as an array")
    name, unfused = _choose_unfused(case)
    return Choice(name, f"{reason}; {unfused}")


def _why_not_array(case: Case) -> str:
    """Why cuDNN should not read the mask of a case as an array; empty if it should."""
    if case.queries % MASK_TILE or case.keys % MASK_TILE:
        return f"cudnn would read this mask as an array, and lengths are no multiples of {MASK_TILE}"
    if case.mask_elements > LARGE_MASK:
        return f"cudnn would read this mask as an array of {case.mask_elements:,} elements"
    if not why_not_chunked(case) and visited(case) <= SPARSE_MASK:
        return "cudnn would compute all scores"
    return ""


def _choose_unfused(case: Case) -> Choice:
    """Einsum for few scores, else chunks where they can handle the case."""
    reason = why_not_chunked(case)
    if case.platform not in LARGE and not reason and (fraction := visited(case)) <= SPARSE:
        return Choice("chunked", f"the mask leaves {fraction:.0%} of the blocks of scores")
    large, long = LARGE.get(case.platform, LARGE_ELSEWHERE), LONG.get(case.platform, 0)
    if case.scores < large:
        return Choice("einsum", f"less than {large:,} scores a layer")
    if case.keys < long:
        return Choice("einsum", f"less than {long} keys")
    if reason:
        return Choice("einsum", f"{large:,} scores a layer or more, but {reason}")
    return Choice("chunked", f"{large:,} scores a layer or more")


def _platform() -> str:
    """The platform of the current mesh; a GPU with its compute capability, which the name of an absent one says."""
    if (name := current_platform()) != "gpu":
        return name
    device = jax.sharding.get_abstract_mesh().abstract_device
    described = re.search(r"compute capability (\d+\.\d+)", device.device_kind if device else "")
    return f"gpu {described[1] if described else getattr(jax.local_devices()[0], 'compute_capability', '')}"
