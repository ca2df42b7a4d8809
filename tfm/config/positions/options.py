"""What the options of all positions have."""

from typing import ClassVar

from tfm.config.choices import Options


class PositionOptions(Options):
    """Options of one scheme.

    in_scores: positions are part of the scores of attention
    in_windows: they are those of places in a window of a grid
    """

    in_scores: ClassVar[bool] = True
    in_windows: ClassVar[bool] = False
