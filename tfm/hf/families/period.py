"""Kinds of layers that a folder lists one by one."""

from collections.abc import Sequence

from tfm.config.model import Layer
from tfm.options.dotted import flatten


def period_values(layers: Sequence[Layer], name: str = "period") -> dict[str, object]:
    """The shortest period of layers, by dotted names."""
    period = shortest_period(layers) or [Layer()]
    values: dict[str, object] = {name: len(period)}
    for index, layer in enumerate(period):
        values |= flatten(layer, f"{name}.{index}.")
    return values


def shortest_period(layers: Sequence[Layer]) -> Sequence[Layer]:
    """Shortest period of the layer kinds."""
    sizes = range(1, len(layers) + 1)
    return next((layers[:size] for size in sizes if layers[size:] == layers[:-size]), layers)
