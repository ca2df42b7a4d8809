"""Blocks that see their neighbours, global blocks and random blocks (Zaheer et al. 2020, section 2)."""

import functools

import numpy as np

from tfm.config.model import Config
from tfm.config.patterns import BigBird
from tfm.masks.distance import causal
from tfm.masks.mask import Mask
from tfm.masks.place import chosen_blocks, global_tokens, local_blocks
from tfm.patterns import Pattern


def mask(options: BigBird, config: Config, is_causal: bool) -> Mask:
    """The three kinds of keys together."""
    before, after = _window(options, is_causal)
    pattern = local_blocks(options.block, before, after)
    if options.global_blocks:
        pattern = pattern | global_tokens(options.global_blocks * options.block)
    if options.random:
        pattern = pattern | chosen_blocks(options.block, random_blocks(options, config.sizes["P"], is_causal))
    return causal() & pattern if is_causal else pattern


@functools.cache
def random_blocks(options: BigBird, length: int, is_causal: bool) -> tuple[tuple[int, ...], ...]:
    """The random blocks of each block of a text: neither global ones, nor those of its window, nor later ones of a
    decoder; -1 where there are too few."""
    count = -(-length // options.block)
    before, after = _window(options, is_causal)
    rows = []
    for block in range(count):
        last = block if is_causal else count
        first_near, last_near = max(block - before, options.global_blocks), min(block + after + 1, last)
        candidates = [*range(options.global_blocks, first_near), *range(last_near, last)]
        drawn = np.random.default_rng((options.seed, block)).permutation(len(candidates))[: options.random]
        chosen = sorted(candidates[index] for index in drawn)
        rows.append((*chosen, *[-1] * (options.random - len(chosen))))
    return tuple(rows)


def _window(options: BigBird, is_causal: bool) -> tuple[int, int]:
    """Blocks that a block sees before and after itself."""
    return (options.window - 1, 0) if is_causal else (options.window // 2, options.window // 2)


PATTERN = Pattern(mask)
