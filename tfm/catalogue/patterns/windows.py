"""Windows of a grid of patches (Swin: Liu et al. 2021, section 3.2)."""

from tfm.catalogue.options.patterns import Windows
from tfm.catalogue.patterns.grid_windows import grid_windows
from tfm.catalogue.patterns.window_partition import WindowPartition
from tfm.config.model import Config
from tfm.masks.mask import Mask
from tfm.patterns import Pattern


def mask(options: Windows, config: Config, is_causal: bool) -> Mask:
    """The windows, without the zeros at the end of a grid that they do not divide."""
    rows, columns = _grid(config)
    return grid_windows(rows, columns, options.side(config), options.offset(config))


def windows(options: Windows, config: Config) -> WindowPartition:
    """The same windows as rows of a batch."""
    rows, columns = _grid(config)
    return WindowPartition(rows, columns, options.side(config), options.offset(config))


def _grid(config: Config) -> tuple[int, int]:
    """Rows and columns of patches; the options see to it that there are some."""
    assert config.grid is not None
    return config.grid


PATTERN = Pattern(mask, windows=windows)
