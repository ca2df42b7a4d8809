"""What every token goes through by itself, behind the mixer of a block."""

from typing import Literal

from tfm.catalogue.options.feed_forwards import ExpertChoice, Experts, MixFfn
from tfm.options.choices import Options, frozen, tag


@frozen
class PositionWise(Options):
    """Two linear maps with an activation between them, the same for all tokens (Vaswani et al. 2017, section 3.3)."""

    name: Literal["dense"] = tag("dense")


FeedForward = PositionWise | Experts | ExpertChoice | MixFfn
