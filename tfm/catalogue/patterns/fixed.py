"""Blocks that see themselves, and the last tokens of all blocks (Child et al. 2019, section 4.3)."""

from tfm.catalogue.options.patterns import Fixed
from tfm.config.model import Config
from tfm.masks.distance import causal, window
from tfm.masks.mask import Mask
from tfm.masks.place import local_blocks, summaries
from tfm.patterns import Pattern


def mask(options: Fixed, config: Config, is_causal: bool) -> Mask:
    """Both kinds of keys of the paper in one head, which it calls a merged head; or the second kind, and the token
    itself, so that no token sees nothing."""
    own = local_blocks(options.block) if options.own_block else window(0, 0)
    pattern = own | summaries(options.block, options.summary)
    return causal() & pattern if is_causal else pattern


PATTERN = Pattern(mask)
