"""The catalogue of positions that have a vector each."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tfm.config.positions.checks import check_axes
from tfm.config.positions.options import Absolute, Place, PositionOptions
from tfm.options.choices import check_fields, check_maximum, check_minimum, tag


@dataclass(frozen=True)
class Learned(Absolute):
    """A trained vector for each position (Devlin et al. 2018).

    place: added | queries_keys | concatenated: to the embeddings, in every layer, or beside the embeddings
    """

    name: Literal["learned"] = tag("learned")
    place: Place = "added"

    def max_length(self, config: Any) -> int | None:
        return config.sizes["P"]


# Embeddings of tokens of less than this size are hidden by sinusoids, whose size is 0.7.
_SMALL = 0.25


@dataclass(frozen=True)
class Sinusoidal(Absolute):
    """Sines and cosines of the position (Vaswani et al. 2017, section 3.5).

    order: interleaved | halves: sines in even columns and cosines in odd ones, or all sines first
    place: added | queries_keys | concatenated: to the embeddings, in every layer, or beside the embeddings
    axes: 1 | 2: places in the sequence, or columns and rows of an image, half of the width for each
    """

    name: Literal["sinusoidal"] = tag("sinusoidal")
    order: Literal["interleaved", "halves"] = "interleaved"
    place: Place = "added"
    axes: int = 1

    def check(self, config: Any) -> None:
        super().check(config)
        check_axes(self, config, config.sizes[config.embed_axis])

    def advice(self, config: Any) -> str:
        is_small = getattr(config.input, "scale", None) is False and config.init_std < _SMALL
        if self.place != "added" or not is_small:
            return ""
        return f"sinusoids hide embeddings of size {config.init_std:g}; --model.input.scale=true makes these larger"


@dataclass(frozen=True)
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

    def check(self, config: Any) -> None:
        width = config.sizes[config.embed_axis]
        if not 0 < self.widths(width)[0] < width:
            raise ValueError(f"row_width={self.row_width} must be less than width={width}; none takes half of it")

    def widths(self, width: int) -> tuple[int, int]:
        """The sizes of the vectors of rows and of columns, out of that of embeddings."""
        rows = width // 2 if self.row_width is None else self.row_width
        return rows, width - rows

    def max_length(self, config: Any) -> int | None:
        return self.rows * self.columns
