"""Rotary positions: queries and keys are rotated, so that a score depends on the distance alone (Su et al. 2021)."""

import jax.numpy as jnp
from jax import Array

from tfm.attention.project import Attention
from tfm.config.positions import Rotary
from tfm.interfaces import AttentionContext, LayerCall, Position
from tfm.positions.frequencies import frequencies
from tfm.positions.grid_axes import centres, first_places


def rotary_angles(options: Rotary, head_size: int, positions: Array, length: int | None = None) -> Array:
    """positions [B,T], or [B,T,A] along A axes -> float32 angles [B,T,R/2] of the R rotated elements of a head.

    Pair n turns by base ** (-2 n / R) radians a position (Su et al. 2021, eq. 15), by less where `options.scaling` says
    so. Scalings that depend on the length of a text take `length`, by default T. Each axis has R / A elements, those of
    times first, those of rows before those of columns (Heo et al. 2024, section 3.2).
    """
    size = options.rotary_dim(head_size) // options.axes
    radians = frequencies(options.scaling, options.base, size, positions.shape[1] if length is None else length)
    angles = positions[..., None].astype(jnp.float32) * jnp.expand_dims(radians, range(positions.ndim))
    if positions.ndim == 2:
        return angles
    return jnp.concatenate([angles[:, :, axis] for axis in range(options.axes)], axis=-1)


def rotate(x: Array, angles: Array, pairs: str = "halves", scale: float = 1.0) -> Array:
    """x [B,T,...,H], angles [B,T,R/2] -> x with pairs of its last axis rotated; computed in float32.

    pairs: "halves": (n, n + R/2), as GPT-NeoX and Llama have them; "adjacent": (2n, 2n + 1) (Su et al. 2021, eq. 34)
    scale: rotated elements are multiplied by it (Peng et al. 2023, section 3.4)
    """
    angles = jnp.expand_dims(angles, range(2, x.ndim - 1))
    cos, sin = scale * jnp.cos(angles), scale * jnp.sin(angles)
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


def prepare(call: LayerCall[Rotary, None, None], context: AttentionContext) -> tuple[Array, Array]:
    """The angles of queries and of keys in all layers with these options; those of a vector that has no place in the
    image or video are 0."""

    def angles(positions: Array) -> Array:
        if call.options.axes > 1:
            is_centre = call.options.coordinates == "centres"
            positions = (centres if is_centre else first_places)(call.config, positions)
        return rotary_angles(call.options, call.config.sizes["H"], positions, context.text_length)

    query_angles, keys = angles(context.positions), context.key_positions
    return query_angles, query_angles if keys is context.positions else angles(keys)


def score(
    call: LayerCall[Rotary, None, tuple[Array, Array]], q: Array, k: Array, projections: Attention
) -> tuple[Array, Array, None]:
    """Rotated queries and keys."""
    query_angles, key_angles = call.prepared
    pairs, scale = call.options.pairs, call.options.attention_scaling
    return rotate(q, query_angles, pairs, scale), rotate(k, key_angles, pairs, scale), None


POSITION = Position(prepare=prepare, score=score)
