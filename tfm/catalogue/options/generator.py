"""The shape of the generator of replaced-token detection."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GeneratorShape:
    """Layers, width and heads of a generator."""

    layers: int
    width: int
    heads: int
