"""What the options of positions share."""

from typing import Any, ClassVar, Literal

from tfm.config.choices import Options, check_fields, check_maximum, check_minimum

# Where the vectors of absolute positions go.
Place = Literal["added", "queries_keys", "concatenated"]


class PositionOptions(Options):
    """Options of one scheme.

    in_scores: positions are part of the scores of attention
    reads_segments: distances alone matter, so that a text may be read in segments
    """

    in_scores: ClassVar[bool] = True
    reads_segments: ClassVar[bool] = True


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
        if config.input.width is not None:
            raise ValueError("position.place=queries_keys adds vectors of the model's width; leave out input.width")
        if any(kind.position == self and getattr(kind.mixer, "qk_norm", False) for kind in config.kinds):
            raise ValueError(
                "position.place=queries_keys adds to what mixer.qk_norm=true has normalized; choose one of them"
            )


def check_buckets(options: Any) -> None:
    """Raises ValueError for buckets that distances up to `max_distance` cannot fill."""
    check_fields(options)
    check_minimum(options, buckets=4)
    check_maximum(options, "no text is as long", buckets=1 << 24, max_distance=1 << 30)
    if options.max_distance <= options.buckets // 2:
        raise ValueError(f"max_distance={options.max_distance} must be more than half of buckets={options.buckets}")


def check_distance(options: Any) -> None:
    """Raises ValueError for a distance to clip at that is below 1 or absurd."""
    check_fields(options)
    check_minimum(options, max_distance=1)
    check_maximum(options, "no text is as long", max_distance=1 << 24)
