"""The shape of the generator of replaced-token detection."""

from tfm.options.choices import frozen


@frozen
class GeneratorShape:
    """Layers, width and heads of a generator."""

    layers: int
    width: int
    heads: int
