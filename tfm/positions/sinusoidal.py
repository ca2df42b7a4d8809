"""Sines and cosines of the position (Vaswani et al. 2017, section 3.5)."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from tfm.config.model import Config
from tfm.config.positions import Sinusoidal
from tfm.interfaces import AttentionContext, LayerCall, Position
from tfm.positions.absolute import embed_at, embed_specs_at, score_at
from tfm.positions.grid_axes import places


def sinusoidal(positions: Array, width: int, order: str = "interleaved") -> Array:
    """positions [B,T] -> float32 [B,T,width], of wavelengths from 2 pi to 10,000 * 2 pi.

    `order` interleaved: sines in even columns and cosines in odd ones; halves: all sines first.
    """
    wavelengths = 10_000.0 ** (jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angles = positions[..., None].astype(jnp.float32) / wavelengths[None, None]
    waves = jnp.sin(angles), jnp.cos(angles)
    if order == "halves":
        return jnp.concatenate(waves, axis=-1)[..., :width]
    return jnp.stack(waves, axis=-1).reshape(*positions.shape, -1)[..., :width]


def waves(options: Sinusoidal, config: Config, positions: Array, width: int) -> Array:
    """positions [B,T] -> float32 [B,T,width].

    With two axes the first half tells columns, the second half rows (He et al. 2022, in code); a vector that has no
    place in the image has zeros.
    """
    if options.axes == 1:
        return sinusoidal(positions, width, options.order)
    row_column = places(config, positions)
    rows, columns = (sinusoidal(row_column[..., axis], width // 2, options.order) for axis in range(2))
    return jnp.where(row_column[..., :1] < 0, 0, jnp.concatenate([columns, rows], axis=-1))


def embed_specs(options: Sinusoidal, config: Config) -> Any:
    """What embeddings need."""
    return embed_specs_at(options.place, config, None)


def embed(call: LayerCall[Sinusoidal, Any, None], x: Array, positions: Array) -> Array:
    """x [B,T,U] with the waves of positions [B,T]."""
    return embed_at(
        call.options.place, call.params, x, lambda _: waves(call.options, call.config, positions, x.shape[-1])
    )


def prepare(call: LayerCall[Sinusoidal, None, None], context: AttentionContext) -> Array | None:
    """float32 waves [B,T,D] for queries and keys."""
    return (
        waves(call.options, call.config, context.positions, call.config.width)
        if call.options.place == "queries_keys"
        else None
    )


POSITION = Position(embed_specs, embed, prepare=prepare, score=score_at)
