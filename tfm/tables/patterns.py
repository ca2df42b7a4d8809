"""Patterns of softmax attention by the tag of their options."""

from tfm.catalogue.patterns import bigbird, etc, fixed, longformer, neighbourhood, sliding, strided, transient, windows
from tfm.options.choices import Options
from tfm.patterns import Pattern, full, local

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
    "neighbourhood": neighbourhood.PATTERN,
}


def pattern_of(options: Options) -> Pattern:
    """The functions of the pattern that options describe."""
    return PATTERNS[options.name]
