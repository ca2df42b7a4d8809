"""What the options of each slot share, in the core and in the catalogue."""

from collections.abc import Sequence
from typing import ClassVar

from tfm.options.choices import MAX_LENGTH, Options, check_fields, check_maximum, check_minimum
from tfm.options.model import ModelConfig


class InputOptions(Options):
    """Options of one input.

    ignores: fields of a configuration that mean nothing with it
    min_layers: the fewest layers that read it
    """

    ignores: ClassVar[tuple[str, ...]] = ()
    min_layers: ClassVar[int] = 1

    @property
    def axis(self) -> str:
        """The letter of the width of the embeddings."""
        return "D"

    @property
    def prefix(self) -> int:
        """Vectors that stand before those of what is read."""
        return 0

    @property
    def suffix(self) -> int:
        """Vectors that stand behind those of a text."""
        return 0

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of what is read; None for texts."""
        return None

    @property
    def axes(self) -> tuple[int, ...] | None:
        """How many places lie along each axis of what is read, such as rows and columns; None for texts."""
        return self.grid

    @property
    def array_shape(self) -> tuple[int, ...] | None:
        """The shape of what is read, where it is an array of numbers of fixed sizes; None for tokens."""
        return None

    def sizes(self, config: ModelConfig) -> dict[str, int]:
        """The sizes of the letters that depend on the input."""
        return {"U": config.width, "P": config.length}


class PositionOptions(Options):
    """Options of one scheme.

    in_scores: positions are part of the scores of attention
    in_grid: they count rows and columns of images
    in_windows: those of a window of a grid
    reads_segments: distances alone matter, so that a text may be read in segments
    """

    in_scores: ClassVar[bool] = True
    in_grid: ClassVar[bool] = False
    in_windows: ClassVar[bool] = False
    reads_segments: ClassVar[bool] = True

    def advice(self, config: ModelConfig) -> str:
        """What a fresh model of these options should have and has not; by default nothing."""
        return ""


def check_lengths(options: Options, *names: str, zero: Sequence[str] = ()) -> None:
    """Raises ValueError for fields of another type, and numbers of positions that no text has; `zero` may be 0."""
    check_fields(options)
    check_minimum(options, **dict.fromkeys(names, 1), **dict.fromkeys(zero, 0))
    check_maximum(options, "no text is as long", **dict.fromkeys((*names, *zero), MAX_LENGTH))


def check_odd(options: Options, *names: str) -> None:
    """Raises ValueError for a side, or a window, that has no middle."""
    for name in names:
        value = getattr(options, name)
        if value % 2 == 0:
            raise ValueError(f"{name}={value} must be odd; try {name}={value + 1}")


def check_grid(config: ModelConfig, slot: str, options: Options) -> None:
    """Raises ValueError for a model whose layers read no grid; `slot` is where the options stand."""
    if config.grid is None:
        raise ValueError(
            f"{slot}={options.name} needs a grid of patches and nothing beside it; take input=patches, without "
            "input.cls"
        )


def check_layer_scale(options: Options) -> None:
    """Raises ValueError for a scale that is no part of a branch."""
    check_fields(options)
    check_minimum(options, layer_scale=0)
    check_maximum(options, "branches start small; 0.1 to 0.000001 is usual", layer_scale=1)
