"""The nearest tokens, and tokens at multiples of a stride (Child et al. 2019, section 4.3)."""

from tfm.catalogue.options.patterns import Strided
from tfm.config.model import Config
from tfm.masks.distance import causal, strided, window
from tfm.masks.mask import Mask
from tfm.patterns import Pattern


def mask(options: Strided, config: Config, is_causal: bool) -> Mask:
    """Both kinds of keys of the paper in one head, which it calls a merged head."""
    nearest = window(options.stride, 0 if is_causal else options.stride)
    return (nearest | strided(options.stride)) & causal() if is_causal else nearest | strided(options.stride)


PATTERN = Pattern(mask)
