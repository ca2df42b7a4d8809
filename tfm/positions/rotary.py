"""Rotary positions: queries and keys are rotated, so that a score depends on the distance alone (Su et al. 2021)."""

import math
from typing import Any

import jax.numpy as jnp
from jax import Array

from tfm.attention.context import AttentionContext, LayerCall
from tfm.attention.positions.grid import places
from tfm.attention.project import Attention
from tfm.config.model import Config
from tfm.config.positions import Rotary
from tfm.positions import Position


def rotary_angles(options: Rotary, head_size: int, positions: Array) -> Array:
    """positions [B,T], or [B,T,A] along A axes -> float32 angles [B,T,R/2] of the R rotated elements of a head.

    Pair n turns by base ** (-2 n / R) radians a position (Su et al. 2021, eq. 15), long wavelengths by less
    (Chen et al. 2023, eq. 4; Grattafiori et al. 2024, section 3.4.2). Each axis has R / A elements, those of rows
    before those of columns (Heo et al. 2024, section 3.2).
    """
    size = options.rotary_dim(head_size) // options.axes
    frequencies = _scaled(options, options.base ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size))
    angles = positions[..., None].astype(jnp.float32) * jnp.expand_dims(frequencies, range(positions.ndim))
    if positions.ndim == 2:
        return angles
    return jnp.concatenate([angles[:, :, axis] for axis in range(options.axes)], axis=-1)


def _scaled(options: Rotary, frequencies: Array) -> Array:
    """Radians a position: long wavelengths grow by the scaling factor, those of middle length in part."""
    if options.scaling_factor == 1:
        return frequencies
    if options.low_freq_wavelength is None or options.high_freq_wavelength is None:
        return frequencies / options.scaling_factor
    low, high = 1 / options.low_freq_wavelength, 1 / options.high_freq_wavelength
    kept = jnp.clip((frequencies / (2 * math.pi) - low) / (high - low), 0, 1)
    return kept * frequencies + (1 - kept) * frequencies / options.scaling_factor


def rotate(x: Array, angles: Array, pairs: str = "halves") -> Array:
    """x [B,T,...,H], angles [B,T,R/2] -> x with pairs of its last axis rotated; computed in float32.

    pairs: "halves": (n, n + R/2), as GPT-NeoX and Llama have them; "adjacent": (2n, 2n + 1) (Su et al. 2021, eq. 34)
    """
    angles = jnp.expand_dims(angles, range(2, x.ndim - 1))
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    if pairs == "adjacent":
        return _rotate_adjacent(x.astype(jnp.float32), cos, sin).astype(x.dtype)
    half = angles.shape[-1]
    first, second, rest = jnp.split(x.astype(jnp.float32), (half, 2 * half), axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1).astype(x.dtype)


def _rotate_adjacent(x: Array, cos: Array, sin: Array) -> Array:
    """x [...,H], cosines and sines [...,R/2] -> x with the pairs (2n, 2n + 1) of its first R elements rotated."""
    rotated, rest = jnp.split(x, [2 * cos.shape[-1]], axis=-1)
    is_first = jnp.expand_dims(jnp.arange(rotated.shape[-1]) % 2 == 0, range(x.ndim - 1))
    partner = jnp.where(is_first, -jnp.roll(rotated, -1, -1), jnp.roll(rotated, 1, -1))
    rotated = rotated * jnp.repeat(cos, 2, -1) + partner * jnp.repeat(sin, 2, -1)
    return jnp.concatenate([rotated, rest], axis=-1)


def prepare(params: Any, options: Rotary, config: Config, context: AttentionContext) -> tuple[Array, Array]:
    """The angles of queries and of keys in all layers with these options; those of a vector that has no place in the
    image are 0."""

    def angles(positions: Array) -> Array:
        if options.axes == 2:
            positions = jnp.maximum(places(config, positions), 0)
        return rotary_angles(options, config.sizes["H"], positions)

    query_angles = angles(context.positions)
    return query_angles, angles(context.key_positions) if context.segment_memory else query_angles


def score(call: LayerCall, q: Array, k: Array, projections: Attention) -> tuple[Array, Array, None]:
    """Rotated queries and keys."""
    (query_angles, key_angles), pairs = call.prepared, call.options.pairs
    return rotate(q, query_angles, pairs), rotate(k, key_angles, pairs), None


POSITION = Position(prepare=prepare, score=score)
