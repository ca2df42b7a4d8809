"""Kinds of layers that a folder lists one by one."""

from collections.abc import Sequence
from typing import Any

from tfm.config.model import Layer
from tfm.options.dotted import flatten


def period_values(layers: Sequence[Layer], name: str = "period") -> dict[str, Any]:
    """The shortest period of some layers, by dotted names."""
    period = shortest_period(layers) or [Layer()]
    values: dict[str, Any] = {name: len(period)}
    for index, layer in enumerate(period):
        values |= flatten(layer, f"{name}.{index}.")
    return values


def shortest_period(layers: Sequence[Layer]) -> Sequence[Layer]:
    """The first layers, so many that the others repeat them."""
    sizes = range(1, len(layers) + 1)
    return next((layers[:size] for size in sizes if layers[size:] == layers[:-size]), layers)
