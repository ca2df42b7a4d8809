"""What options of several positions have in common to judge."""

from typing import Any

from tfm.options.choices import MAX_LENGTH, check_fields, check_maximum, check_minimum


def check_axes(options: Any, config: Any, width: int) -> None:
    """Raises ValueError for `axes` that the input does not have, or that do not divide what encodes them."""
    check_minimum(options, axes=1)
    check_maximum(options, "an image has rows and columns", axes=2)
    if options.axes == 2 and config.input.grid is None:
        raise ValueError(
            f"position.axes=2 counts rows and columns, which input={config.input.name} does not have; try "
            "position.axes=1"
        )
    if options.axes == 2 and width % 4:
        raise ValueError(
            f"position.axes=2 needs pairs for rows and for columns: {width} elements for both must be a multiple of 4"
        )


def check_buckets(options: Any) -> None:
    """Raises ValueError for buckets that distances up to `max_distance` cannot fill."""
    check_fields(options)
    check_minimum(options, buckets=4)
    check_maximum(options, "no text is as long", buckets=MAX_LENGTH, max_distance=1 << 30)
    if options.max_distance <= options.buckets // 2:
        raise ValueError(f"max_distance={options.max_distance} must be more than half of buckets={options.buckets}")


def check_distance(options: Any) -> None:
    """Raises ValueError for a distance to clip at that is below 1 or absurd."""
    check_fields(options)
    check_minimum(options, max_distance=1)
    check_maximum(options, "no text is as long", max_distance=MAX_LENGTH)
