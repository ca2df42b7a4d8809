"""Mixers of grids of patches."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tfm.options.choices import Options, check_fields, check_maximum, check_minimum, tag
from tfm.options.model import ModelConfig
from tfm.options.slots import check_grid


@dataclass(frozen=True)
class Stripes(Options):
    """Half of the heads attend within stripes of rows of patches, half within stripes of columns, and a convolution of
    the values tells where patches stand (CSWin: Dong et al. 2022, section 3.2); for encoders.

    stripe: rows, or columns, of a stripe; a grid that has no more is one stripe
    kernel: side of the square of patches that the convolution reads
    """

    name: Literal["stripes"] = tag("stripes")
    reads_packed: ClassVar[bool] = False
    stripe: int = 1
    kernel: int = 3

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, stripe=1, kernel=1)
        check_maximum(self, "no grid is as large", stripe=1 << 12, kernel=63)
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel={self.kernel} must be odd; try kernel={self.kernel + 1}")

    def check(self, config: ModelConfig) -> None:
        check_grid(config, "mixer", self)
        if config.sizes["K"] % 2:
            raise ValueError(
                f"mixer=stripes has as many heads for rows as for columns, and {config.sizes['K']} is odd; take an "
                "even number of heads"
            )
        for axis, side in enumerate(config.grid or ()):
            if side % self.side(config, axis):
                raise ValueError(f"mixer.stripe={self.stripe} must divide the {side} patches of a side; try 1")

    def side(self, config: ModelConfig, axis: int) -> int:
        """The rows (`axis` 0), or the columns, of a stripe of this model, whose grid may be smaller."""
        assert config.grid is not None
        return min(self.stripe, config.grid[axis])
