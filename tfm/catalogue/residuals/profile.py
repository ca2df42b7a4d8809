"""What a batch shows of a model, for schemes that set their parameters by it (`tfm.calibrate`)."""

from typing import NamedTuple

from jax import Array

from tfm.interfaces import Block


class Profile(NamedTuple):
    """One pass over a batch without dropout.

    x: what the first block has read [B,T,D]
    branches: for each layer, what its sublayers have added to the stream [B,T,D], by name
    specs: for each layer, the spec tree of its block
    """

    x: Array
    branches: list[dict[str, Array]]
    specs: list[Block]
