"""The size of the blocks of chunked attention, and the share of all pairs that they compute."""

import math

from tfm.attention.kernels.case import Shaped
from tfm.attention.kernels.passes import passes
from tfm.axes import platform
from tfm.masks.mask import Mask

# Scores of a block of queries and a block of keys. On a CPU they should stay in its cache (M7: 0.1 of the time).
SCORES = {"cpu": 1 << 18}
SCORES_ELSEWHERE, FEWEST_ELSEWHERE = 1 << 24, 1 << 21
SMALLEST, LARGEST = 64, 1024

# M37: the largest blocks are taken that visit at most this many times the pairs that the best size visits.
MAX_WASTE = 1.4


def block_size(q: Shaped, keys: int, mask: Mask | None, device: str = "") -> int:
    """The number of queries [B,T,K,G,H], and of keys, in a block: a power of two.

    Blocks are smaller where a static pattern is narrow, so that fewer pairs are computed in vain; but not so small that
    they leave a device idle.
    """
    device, heads = device or platform(), max(q.size // (q.shape[1] * q.shape[-1]), 1)
    root = math.isqrt(SCORES.get(device, SCORES_ELSEWHERE) // heads)
    size = min(max(SMALLEST, 1 << max(root.bit_length() - 1, 0)), LARGEST)
    if mask is None:
        return size
    smallest = 0 if device in SCORES else FEWEST_ELSEWHERE
    halves = [size >> n for n in range(size.bit_length()) if size >> n >= SMALLEST]
    halves = [half for half in halves if heads * half**2 >= smallest]
    pairs = {half: half**2 * mask.blocks(half, half, q.shape[1], keys).sum() for half in halves}
    return max((half for half in halves if pairs[half] <= MAX_WASTE * min(pairs.values())), default=size)


def visited(q: Shaped, keys: int, mask: Mask, device: str) -> float:
    """The fraction of all pairs of queries [B,T,K,G,H] and keys that chunks compute under a static mask."""
    queries, size = q.shape[1], block_size(q, keys, mask, device)
    masks = [part.ordered_mask for part in passes(mask, queries, keys)]
    return sum(int(part.blocks(size, size, queries, keys).sum()) for part in masks) * size**2 / max(queries * keys, 1)
