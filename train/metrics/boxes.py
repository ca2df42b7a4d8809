"""Boxes: their corners and overlaps. A box is its center's x and y, its width and its height."""

from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array

AnyArray = TypeVar("AnyArray", Array, np.ndarray)

# Added to areas that divide, so that boxes without area give a number.
_TINY = 1e-9


def corners(boxes: AnyArray) -> tuple[AnyArray, AnyArray]:
    """boxes [...,4] -> their least and their largest x and y, [...,2] each."""
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    return center - half, center + half


def overlaps(first: Array, second: Array) -> tuple[Array, Array]:
    """boxes [...,4] twice -> [...] each: intersection over union, and the generalized one (Rezatofighi et al. 2019):
    less by the share of the smallest box around both that is in none of them."""
    (low, high), (second_low, second_high) = corners(first), corners(second)
    both = _area(jnp.maximum(jnp.minimum(high, second_high) - jnp.maximum(low, second_low), 0))
    union = _area(first[..., 2:]) + _area(second[..., 2:]) - both
    hull = _area(jnp.maximum(high, second_high) - jnp.minimum(low, second_low))
    ratio = both / (union + _TINY)
    return ratio, ratio - (hull - union) / (hull + _TINY)


def _area(sides: Array) -> Array:
    """sides [...,2] -> their products [...]."""
    return sides[..., 0] * sides[..., 1]
