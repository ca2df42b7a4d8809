"""Patterns of softmax attention: one file a pattern, named like its tag in `tfm.config.patterns`, with a function
`mask`."""

from tfm import variants
from tfm.config.patterns import Pattern
from tfm.masks.mask import Mask


def pattern_mask(options: Pattern, causal: bool) -> Mask | None:
    """Which keys a query may see by its pattern and by causality; None: all."""
    return variants.load(options).mask(options, causal)
