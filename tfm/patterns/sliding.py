"""A sliding window, which may be dilated (Beltagy et al. 2020, section 3.1)."""

from tfm.config.model import Config
from tfm.config.patterns import Sliding
from tfm.masks.distance import strided, window
from tfm.masks.mask import Mask
from tfm.patterns import Pattern


def mask(options: Sliding, config: Config, is_causal: bool) -> Mask:
    """The window to the left, or to both sides."""
    left, right = (options.window - 1, 0) if is_causal else (options.window // 2, options.window // 2)
    dense = window(left * options.dilation, right * options.dilation)
    return dense if options.dilation == 1 else dense & strided(options.dilation)


PATTERN = Pattern(mask)
