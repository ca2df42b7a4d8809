"""The frequencies of rotary positions: how fast pairs turn, for texts as long as those of training and for longer
ones."""

import math

import jax.numpy as jnp
from jax import Array

from tfm.catalogue.options.positions.scaling import Dynamic, LinearScaling, Llama3, LongRope, Scaling, Yarn


def frequencies(scaling: Scaling | None, base: float, size: int, length: int) -> Array:
    """float32 [R/2], radians a position of the pairs of R = `size` elements, in a pass over texts of `length` tokens.

    Pair n turns by base ** (-2 n / R) (Su et al. 2021, eq. 15), or by less, as each class of scalings says.
    """
    match scaling:
        case None:
            return _unscaled(base, size)
        case LinearScaling():
            return _unscaled(base, size) / scaling.factor
        case Dynamic():
            return _unscaled(_grown_base(scaling, base, size, length), size)
        case LongRope():
            return _unscaled(base, size) / jnp.array(scaling.factors(length, size // 2), jnp.float32)
        case Yarn():
            kept = _kept_by_yarn(scaling, base, size)
        case Llama3():
            kept = _kept_by_llama3(scaling, _unscaled(base, size))
    return kept * _unscaled(base, size) + (1 - kept) * _unscaled(base, size) / scaling.factor


def _unscaled(base: float, size: int) -> Array:
    """base ** (-2 n / R)."""
    return base ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)


def _grown_base(scaling: Dynamic, base: float, size: int, length: int) -> float:
    """base * (factor * length / original - (factor - 1)) ** (R / (R - 2)); that of the model up to the original length.

    A factor of 1 makes the longest wavelength grow as the text does (Peng et al. 2023, section 3.1).
    """
    longer = max(length, scaling.original_length) / scaling.original_length
    return base * (scaling.factor * longer - (scaling.factor - 1)) ** (size / (size - 2))


def _kept_by_yarn(scaling: Yarn, base: float, size: int) -> Array:
    """The part of each frequency that is left as it is: 1 for the first pairs, 0 for the last, and a ramp between them
    (Peng et al. 2023, section 3.2)."""

    def pair(rotations: float) -> float:
        """The pair that turns so often in an original text."""
        return size * math.log(scaling.original_length / (2 * math.pi * rotations)) / (2 * math.log(base))

    first, last = pair(scaling.beta_fast), pair(scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    width = last - first if last != first else 0.001
    return 1 - jnp.clip((jnp.arange(size // 2, dtype=jnp.float32) - first) / width, 0, 1)


def _kept_by_llama3(scaling: Llama3, unscaled: Array) -> Array:
    """float32 [H/2], the share of each unscaled frequency that Llama 3 keeps, by its rotations in an original text
    (Grattafiori et al. 2024, section 3.4.2)."""
    rotations = scaling.original_length * unscaled / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    return jnp.clip((rotations - low) / (high - low), 0, 1)
