"""Kinds of layers that a folder lists one by one."""

from collections.abc import Sequence

from tfm.catalogue.options.patterns import Sliding
from tfm.config.mixers import Softmax
from tfm.config.model import Kind, Layer
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


# The types of layers that `layer_types` lists.
GLOBAL, LOCAL = "full_attention", "sliding_attention"


def window_of(kind: Kind) -> int | None:
    """The window of a layer; None for a layer that sees everything."""
    pattern = kind.mixer.pattern if isinstance(kind.mixer, Softmax) else None
    return pattern.window if isinstance(pattern, Sliding) else None


def checked_layer_types(layer_types: Sequence[str], layers: int, family: str) -> list[str]:
    """`layer_types`. Raises ValueError for other types, or for another number of layers."""
    if len(layer_types) != layers:
        raise ValueError(
            f"config.json has {len(layer_types)} layer_types and num_hidden_layers={layers}, which must be equal"
        )
    if not set(layer_types) <= {GLOBAL, LOCAL}:
        raise ValueError(
            f"config.json has layer_types={layer_types}; of {family}, only {GLOBAL} and {LOCAL} are supported"
        )
    return list(layer_types)
