"""The catalogue of positions in a grid of patches, or in a window of one."""

from typing import ClassVar, Literal

from tfm.catalogue.options.patterns import Windows
from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig
from tfm.options.slots import PositionOptions


class WindowPosition(PositionOptions):
    """Abstract: positions of places in a window, for layers with `mixer.pattern=windows`."""

    in_grid: ClassVar[bool] = True
    in_windows: ClassVar[bool] = True

    def check(self, config: ModelConfig) -> None:
        """Raises ValueError for layers without windows, and for windows of several sides."""
        if any(side is None for side in self._sides(config)):
            raise ValueError(f"position={self.name} is for layers with mixer.pattern=windows; try position=learned")
        if len(set(self._sides(config))) > 1:
            raise ValueError(f"position={self.name} has a table for windows of one side; choose equal windows")

    def side(self, config: ModelConfig) -> int:
        """The side of the windows."""
        return next(side for side in self._sides(config) if side is not None)

    def _sides(self, config: ModelConfig) -> list[int | None]:
        """The side of the windows of each kind of layer with these positions; None for a kind without windows."""
        patterns = [getattr(kind.mixer, "pattern", None) for kind in config.kinds if kind.position == self]
        return [pattern.side(config) if isinstance(pattern, Windows) else None for pattern in patterns]


@frozen
class Swin(WindowPosition):
    """A trained bias of scores for each offset of rows and columns in a window, and head (Liu et al. 2021, eq. 4)."""

    name: Literal["swin"] = tag("swin")


@frozen
class SwinV2(WindowPosition):
    """Scores are scaled cosines, plus a bias that a small network computes of the offset in a window (Liu et al. 2022).

    hidden: hidden units of that network
    trained_window: side of the windows that it was trained with; none: those of this model
    """

    name: Literal["swin_v2"] = tag("swin_v2")
    hidden: int = 512
    trained_window: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, hidden=1, trained_window=2)
        check_maximum(self, "no network of offsets is as large", hidden=1 << 16, trained_window=1 << 12)


@frozen
class Detr(PositionOptions):
    """Sines and cosines of row and column, which are parts of the height and of the width; they are added to what makes
    queries and keys in every layer (DETR: Carion et al. 2020, section 3.2 and appendix A.4)."""

    in_grid: ClassVar[bool] = True
    place: ClassVar[str] = "queries_keys"

    name: Literal["detr"] = tag("detr")

    def check(self, config: ModelConfig) -> None:
        if len(config.input.axes or ()) != 2:
            raise ValueError(
                f"position=detr counts rows and columns, which input={config.input.name} does not have; try "
                "position=sinusoidal"
            )
        if config.width % 4:
            raise ValueError(
                f"position=detr has pairs for rows and for columns: width={config.width} must be a multiple of 4"
            )
        if any(kind.position == self and getattr(kind.mixer, "qk_norm", False) for kind in config.kinds):
            raise ValueError("position=detr adds to what mixer.qk_norm=true has normalized; choose one of them")


@frozen
class Beit(PositionOptions):
    """A trained bias of scores for each offset of rows and columns of patches, and head, with others of [CLS] (BEiT:
    Bao et al. 2021).

    by_layer: every layer has a table of its own
    shared: all layers have a table in common, which is added to their own
    absolute: a trained vector for each position is added to the embeddings too
    """

    in_grid: ClassVar[bool] = True

    name: Literal["beit"] = tag("beit")
    by_layer: bool = True
    shared: bool = False
    absolute: bool = False

    def check(self, config: ModelConfig) -> None:
        if config.input.grid is None:
            raise ValueError(
                f"position=beit counts rows and columns, which input={config.input.name} does not have; try position=t5"
            )
