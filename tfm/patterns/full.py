"""Every key, or with causality every key up to the query."""

from tfm.config.model import Config
from tfm.config.patterns import Full
from tfm.masks.distance import causal
from tfm.masks.mask import Mask
from tfm.patterns import Pattern


def mask(options: Full, config: Config, is_causal: bool) -> Mask | None:
    """The mask of the pattern."""
    return causal() if is_causal else None


PATTERN = Pattern(mask)
