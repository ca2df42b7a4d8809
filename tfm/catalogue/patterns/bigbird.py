"""Blocks that see their neighbours, global blocks and random blocks (Zaheer et al. 2020, section 2)."""

import functools
import math

import numpy as np
from flax import struct
from jax import Array

from tfm.attention.bias import FollowingBias, ScoreBias
from tfm.catalogue.options.patterns import BigBird
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, refuse
from tfm.masks.distance import causal, decompose
from tfm.masks.mask import Mask
from tfm.masks.place import chosen_blocks, global_tokens, last_tokens, local_blocks
from tfm.patterns import Pattern, in_texts


def mask(options: BigBird, config: Config, is_causal: bool) -> Mask:
    """The three kinds of keys together."""
    before, after = _window(options, is_causal)
    pattern = local_blocks(options.block, before, after)
    if options.global_blocks:
        pattern = pattern | global_tokens(options.global_blocks * options.block)
    if options.random and options.draw == "seeded":
        pattern = pattern | chosen_blocks(options.block, random_blocks(options, config.sizes["P"], is_causal))
    return causal() & pattern if is_causal else pattern


def prepare(call: LayerCall[BigBird, None, None], context: AttentionContext) -> Mask | None:
    """The three kinds of keys and the last blocks; every key of a short row.

    Raises VariantError for a decoder and for several texts in a row, where the pattern depends on the length of a row.
    """
    options = call.options
    pattern = mask(options, call.config, context.causal)
    if options.reads_packed:
        return in_texts(pattern, context)
    if context.causal or decompose(context.mask).segments is not None:
        remedy = "try mixer.pattern.last_blocks=0, draw=seeded and dense_blocks=0"
        refuse(options, "with last_blocks, draw=first or dense_blocks reads one text a row from both sides", remedy)
    count = _row_blocks(options, context)
    if count <= options.dense_blocks:
        return None
    if options.last_blocks:
        pattern = pattern | last_tokens((count - options.last_blocks) * options.block)
    return in_texts(pattern, context)


def bias(call: LayerCall, q: Array, bias: ScoreBias | None) -> ScoreBias | None:
    """That of positions, and with draw=first that of the first block."""
    options, count = call.options, _row_blocks(call.options, call.prepared)
    if options.draw == "seeded" or not options.random or count <= options.dense_blocks:
        return bias
    start, stop = options.global_blocks * options.block, (count - options.last_blocks) * options.block
    return FirstBlockBias(bias, options.block, start, stop, 1 + options.random)


@struct.dataclass
class FirstBlockBias(FollowingBias):
    """Queries from `start` to `stop` count each of the first `block` keys `times` times."""

    block: int = struct.field(pytree_node=False)
    start: int = struct.field(pytree_node=False)
    stop: int = struct.field(pytree_node=False)
    times: int = struct.field(pytree_node=False)

    def change(self, scores, i, j):
        pairs = ((i >= self.start) & (i < self.stop))[:, :, None] & (j < self.block)[:, None, :]
        return scores + math.log(self.times) * pairs.astype(scores.dtype)[:, None, None]


def _row_blocks(options: BigBird, context: AttentionContext) -> int:
    """The blocks of a row; the last one may have fewer tokens."""
    return -(-context.positions.shape[1] // options.block)


@functools.cache
def random_blocks(options: BigBird, length: int, is_causal: bool) -> tuple[tuple[int, ...], ...]:
    """The random blocks of each block of a text: neither global ones, nor last ones, nor those of its window, nor later
    ones of a decoder; -1 where there are too few."""
    count = -(-length // options.block)
    before, after = _window(options, is_causal)
    rows = []
    for block in range(count):
        last = block if is_causal else count - options.last_blocks
        first_near, last_near = max(block - before, options.global_blocks), min(block + after + 1, last)
        candidates = [*range(options.global_blocks, first_near), *range(last_near, last)]
        drawn = np.random.default_rng((options.seed, block)).permutation(len(candidates))[: options.random]
        chosen = sorted(candidates[index] for index in drawn)
        rows.append((*chosen, *[-1] * (options.random - len(chosen))))
    return tuple(rows)


def _window(options: BigBird, is_causal: bool) -> tuple[int, int]:
    """Blocks that a block sees before and after itself."""
    return (options.window - 1, 0) if is_causal else (options.window // 2, options.window // 2)


PATTERN = Pattern(mask, prepare=prepare, bias=bias)
