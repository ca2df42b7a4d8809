"""Patterns of softmax attention by the tag of their options."""

from functools import reduce
from operator import and_

from tfm.catalogue.patterns import bigbird, etc, fixed, longformer, sliding, strided, transient, windows
from tfm.config.model import Config
from tfm.interfaces import AttentionContext
from tfm.masks.distance import after_memory, window
from tfm.masks.mask import Mask
from tfm.masks.place import Restarted
from tfm.options.choices import Options
from tfm.patterns import Pattern, full, local, text_starts

PATTERNS: dict[str, Pattern] = {
    "full": full.PATTERN,
    "local": local.PATTERN,
    "sliding": sliding.PATTERN,
    "strided": strided.PATTERN,
    "fixed": fixed.PATTERN,
    "global": longformer.PATTERN,
    "etc": etc.PATTERN,
    "transient": transient.PATTERN,
    "bigbird": bigbird.PATTERN,
    "windows": windows.PATTERN,
}


def pattern_of(options: Options) -> Pattern:
    """The functions of the pattern that options describe."""
    return PATTERNS[options.name]


def pattern_mask(options: Options, config: Config, context: AttentionContext) -> Mask | None:
    """Which keys a query may see by its pattern and by causality; None: all.

    Blocks and global tokens count from the start of each text, wherever that is in its row.
    """
    pattern = PATTERNS[options.name]
    mask = pattern.in_row(options, pattern.mask(options, config, context.causal), context)
    if mask is not None and context.segment_memory:
        return after_memory(mask, context.segment_memory)
    if mask is None or mask.shift_invariant or not context.restarts:
        return mask
    starts = text_starts(context)
    parts = [part if part.shift_invariant else Restarted(part, starts) for part in mask.conjuncts]
    return reduce(and_, parts, window(*mask.reach))
