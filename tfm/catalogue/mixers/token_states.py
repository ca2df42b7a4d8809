"""Decode states with a slot for every token."""

import jax
import jax.numpy as jnp
from jax import Array

from tfm.config.model import Config
from tfm.options.choices import Options
from tfm.params import PyTree


def pad_slots(options: Options, config: Config, output: PyTree, slots: int) -> PyTree:
    """Starts a state with a slot for every token: leaves [R,B,T,...] -> [R,B,slots,...]."""

    def pad(rows: Array) -> Array:
        return jnp.pad(rows, ((0, 0), (0, 0), (0, slots - rows.shape[2]), *((0, 0),) * (rows.ndim - 3)))

    return jax.tree.map(pad, output)


def write_slots(state: PyTree, output: PyTree, length: Array | int) -> PyTree:
    """Writes leaves [R,B,T,...] of T more tokens into their slots."""

    def write(slots: Array, rows: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(slots, rows, length, axis=2)

    return jax.tree.map(write, state, output)


def move_slots(state: PyTree, distance: Array | int) -> PyTree:
    """Moves leaves [R,B,S,...] from slot n to slot n + distance, modulo S."""
    return jax.tree.map(lambda rows: jnp.roll(rows, distance, axis=2), state)
