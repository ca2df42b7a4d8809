"""Windows of a grid of patches (Swin: Liu et al. 2021, section 3.2)."""

from tfm.attention.windows import WindowPartition
from tfm.config.model import Config
from tfm.config.patterns import Windows
from tfm.masks.grid import grid_windows
from tfm.masks.mask import Mask
from tfm.patterns import Pattern


def mask(options: Windows, config: Config, is_causal: bool) -> Mask:
    """The windows, without the zeros at the end of a grid that they do not divide."""
    return grid_windows(*config.grid, options.side(config), options.offset(config))


def windows(options: Windows, config: Config) -> WindowPartition:
    """The same windows as rows of a batch."""
    return WindowPartition(*config.grid, options.side(config), options.offset(config))


PATTERN = Pattern(mask, windows=windows)
