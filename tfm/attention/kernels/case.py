"""The case that a kernel must handle, and the reasons that all kernels share for not handling it."""

from typing import NamedTuple

import jax
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.masks.distance import MaskParts, decompose
from tfm.masks.mask import Mask
from tfm.sharding import spec_of

# An array, or its shape and dtype alone.
Shaped = Array | jax.ShapeDtypeStruct


class Case(NamedTuple):
    """What the choice of a kernel depends on.

    q, k: queries [B,T,K,G,H] and keys [B,S,K,H]
    mask, bias: of all pairs of them, or None
    rate: dropout rate of attention weights
    scores: of one device
    platform, version: cpu, gpu or tpu; a GPU's compute capability
    """

    q: Shaped
    k: Shaped
    mask: Mask | None
    bias: ScoreBias | None
    rate: float
    scores: int
    platform: str
    version: float

    @property
    def queries(self) -> int:
        """T."""
        return self.q.shape[1]

    @property
    def keys(self) -> int:
        """S."""
        return self.k.shape[1]

    @property
    def parts(self) -> MaskParts:
        """The parts of the mask."""
        return decompose(self.mask)

    @property
    def sharded_length(self) -> bool:
        """Whether the mesh shards the length of queries or of keys."""
        return bool(spec_of(self.q)[1] or spec_of(self.k)[1])


def why_not_blocks(case: Case) -> str:
    """Why no kernel can compute this attention block by block and shard by shard; empty if one can."""
    if case.sharded_length:
        return "the length is sharded"
    if not all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves((case.mask, case.bias))):
        return "the mask or the bias is no pytree of arrays; make its class a flax.struct.dataclass"
    batch, _, *heads, _ = spec_of(case.q)
    masks = () if case.mask is None else case.mask.conjuncts
    if (batch or any(heads)) and not all(mask.shardable for mask in masks):
        return "the batch is sharded, and a mask with arrays does not say shardable=True"
    if case.bias is None:
        return ""
    if not case.bias.blockwise:
        return "the bias is computed for all positions at once"
    if case.bias.adds_values:
        return "the bias adds a term to the weighted sum of values, which only einsum computes"
    return "heads are sharded, and the bias is not" if any(heads) else ""


def why_not_nvidia(case: Case, kernel: str) -> str:
    """Why a kernel for recent NVIDIA GPUs cannot run; empty if it can."""
    if case.platform == "gpu" and case.version >= 8:
        return ""
    platform = f"{case.platform} {case.version or ''}".rstrip()
    return f"{kernel} needs an NVIDIA GPU of compute capability 8.0 or more, and this is {platform}"


def why_not_fused(case: Case) -> str:
    """Why no fused kernel can compute this attention; empty if it may."""
    if case.bias is not None:
        return "a bias is added to the scores"
    if case.rate:
        return f"attention weights are dropped (at {case.rate:g}), which einsum, chunked and triton do"
    return why_not_blocks(case)
