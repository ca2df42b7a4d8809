"""What the options of positions share."""

from typing import Any, ClassVar, Literal

from tfm.options.choices import Options, check_fields

# Where the vectors of absolute positions go.
Place = Literal["added", "queries_keys", "concatenated"]


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

    def advice(self, config: Any) -> str:
        """What a fresh model of these options should have and has not; by default nothing."""
        return ""


class Absolute(PositionOptions):
    """Options of a scheme with a vector for each position, whose `place` says where the vectors go."""

    reads_segments: ClassVar[bool] = False
    place: Place

    def __post_init__(self):
        check_fields(self)

    @property
    def in_scores(self) -> bool:  # type: ignore[override]
        """Positions are added to queries and keys."""
        return self.place == "queries_keys"

    def check(self, config: Any) -> None:
        """Raises ValueError for positions of queries and keys that do not fit the projections of these."""
        if not self.in_scores:
            return
        if config.input.axis != "D":
            raise ValueError("position.place=queries_keys adds vectors of the model's width; leave out input.width")
        if any(kind.position == self and getattr(kind.mixer, "qk_norm", False) for kind in config.kinds):
            raise ValueError(
                "position.place=queries_keys adds to what mixer.qk_norm=true has normalized; choose one of them"
            )
