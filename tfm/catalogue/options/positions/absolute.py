"""Absolute positions on axes of their own, and none at all."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig
from tfm.options.slots import PositionOptions


@frozen
class Axial(PositionOptions):
    """Positions are laid out in rows; the vectors of a row and of a column stand beside one another (Kitaev et al.
    2020, as published; Ho et al. 2019 for images).

    rows: size of the table of rows
    columns: size of the table of columns; positions are rows * columns
    row_width: size of the vectors of rows, the rest of the width is that of columns; none: half of it
    """

    name: Literal["axial"] = tag("axial")
    in_scores: ClassVar[bool] = False
    reads_segments: ClassVar[bool] = False
    rows: int = 32
    columns: int = 32
    row_width: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, rows=1, columns=1, row_width=1)
        check_maximum(self, "no text is as long", rows=1 << 12, columns=1 << 12)

    def check(self, config: ModelConfig) -> None:
        width = config.sizes[config.embed_axis]
        if not 0 < self.widths(width)[0] < width:
            raise ValueError(f"row_width={self.row_width} must be less than width={width}; none takes half of it")

    def widths(self, width: int) -> tuple[int, int]:
        """The sizes of the vectors of rows and of columns, out of that of embeddings."""
        rows = width // 2 if self.row_width is None else self.row_width
        return rows, width - rows

    def max_length(self, config: ModelConfig) -> int | None:
        return self.rows * self.columns


@frozen
class NoPosition(PositionOptions):
    """Nothing; order is then known by causality alone."""

    name: Literal["none"] = tag("none")
    in_scores: ClassVar[bool] = False
