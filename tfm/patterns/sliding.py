"""A sliding window (Beltagy et al. 2020, section 3.1)."""

from tfm.config.patterns import Sliding
from tfm.masks.distance import window
from tfm.masks.mask import Mask


def mask(options: Sliding, is_causal: bool) -> Mask | None:
    """The window to the left, or to both sides."""
    if is_causal:
        return window(options.window - 1, 0)
    return window(options.window // 2, options.window // 2)
