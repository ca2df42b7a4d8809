"""Every key, or with causality every key up to the query."""

from tfm.config.patterns import Full
from tfm.masks.distance import causal
from tfm.masks.mask import Mask


def mask(options: Full, is_causal: bool) -> Mask | None:
    """The mask of the pattern."""
    return causal() if is_causal else None
