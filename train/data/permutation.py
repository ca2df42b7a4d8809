"""Random permutations of any size, of which any member is computed by itself."""

from collections.abc import Sequence

import numpy as np

# What run.json says of the order of rows: a run that began with another one cannot go on.
NAME = "feistel-6"

# Rounds of the network (M62: neighbours are then as different as those of a random order).
_ROUNDS = 6

# Odd numbers, so that no bit of a product is lost, and half of its bits.
_FIRST, _SECOND, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93), np.uint64(32)


def permute(places: np.ndarray, size: int, key: Sequence[int]) -> np.ndarray:
    """places, int [K] in [0, size), -> what stands there in the permutation of [0, size) that the key names, int64 [K].

    A balanced Feistel network permutes the next power of four (Luby and Rackoff 1988). What falls outside is permuted
    again until it falls inside (cycle walking: Black and Rogaway 2002), so that every size has a permutation. The
    members of the key are integers from 0 on.
    """
    bits = np.uint64(max(1, (int(size - 1).bit_length() + 1) // 2))
    low = (np.uint64(1) << bits) - np.uint64(1)
    round_keys = np.random.SeedSequence([len(key), *key]).generate_state(_ROUNDS, np.uint64)
    values = np.array(places, np.uint64)
    outside = np.arange(len(values))
    while len(outside):
        left, right = values[outside] >> bits, values[outside] & low
        for round_key in round_keys:
            left, right = right, left ^ (_mixed(right + round_key) & low)
        values[outside] = left << bits | right
        outside = outside[values[outside] >= np.uint64(size)]
    return values.astype(np.int64)


def permute_blocks(places: np.ndarray, size: int, key: Sequence[int], block: int, window: int) -> np.ndarray:
    """As `permute`, where blocks of `block` members stay together, but for the order within `window` blocks.

    Blocks are permuted, and then all members of each window of blocks. A partial block at the end stays in the last
    window. What is read at about the same time is so in few places.
    """
    blocks, span, members = size // block, block * window, np.empty(len(places), np.int64)
    for index in np.unique(places // span).tolist():
        is_here, first = places // span == index, index * window
        count = min(span, size - first * block)
        order = permute(places[is_here] - first * block, count, (*key, 1 + index))
        slot, offset = np.divmod(order, block)
        is_complete, chosen = first + slot < blocks, np.full(len(slot), blocks)
        if blocks:
            chosen[is_complete] = permute(first + slot[is_complete], blocks, key)
        members[is_here] = chosen * block + offset
    return members


def _mixed(bits: np.ndarray) -> np.ndarray:
    """uint64 -> uint64, in which every bit of a result depends on all bits below it and on the high ones."""
    product = bits * _FIRST
    product = (product ^ (product >> _HALF)) * _SECOND
    return product ^ (product >> _HALF)
