"""Blocks that see themselves (Liu et al. 2018, section 4.2.4), and perhaps their neighbours."""

from tfm.config.model import Config
from tfm.config.patterns import Local
from tfm.masks.distance import causal
from tfm.masks.mask import Mask
from tfm.masks.place import local_blocks
from tfm.patterns import Pattern


def mask(options: Local, config: Config, is_causal: bool) -> Mask:
    """The blocks, causal inside of them for a decoder."""
    if is_causal:
        return causal() & local_blocks(options.block, options.neighbours)
    return local_blocks(options.block, options.neighbours, options.neighbours)


PATTERN = Pattern(mask)
