"""Mixers: how the tokens of a text learn of each other.

One file a mixer, named like its tag in `tfm.config.mixers`; one folder a family of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from tfm import variants
from tfm.attention.context import refuse
from tfm.config.mixers import Mixer as MixerOptions


def cannot_start(options: MixerOptions, output: Any, slots: int) -> Any:
    """Refuses to generate."""
    refuse(options, "reads a text as one piece and cannot generate", "try mixer=softmax")


def replace_state(state: Any, output: Any, length: Any) -> Any:
    """The state of a mixer whose output is its next state."""
    return output


def pad_slots(options: MixerOptions, output: Any, slots: int) -> Any:
    """Starts a state with a slot for every token: leaves [R,B,T,...] -> [R,B,slots,...]."""

    def pad(rows: Array) -> Array:
        return jnp.pad(rows, ((0, 0), (0, 0), (0, slots - rows.shape[2]), *((0, 0),) * (rows.ndim - 3)))

    return jax.tree.map(pad, output)


def write_slots(state: Any, output: Any, length: Array | int) -> Any:
    """Writes leaves [R,B,T,...] of T more tokens into their slots."""

    def write(slots: Array, rows: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(slots, rows, length, axis=2)

    return jax.tree.map(write, state, output)


def cannot_rewind(state: Any) -> bool:
    """For mixers whose states cannot forget tokens."""
    return False


class Mixer(NamedTuple):
    """The functions of one mixer, as a record.

    specs: (options, config) -> the spec tree of one layer
    prepare: (options, config, context) -> once a pass: whatever all layers of this kind share, such as masks
    forward: (call, x, score, state) -> y and a `MixerOutput`, for x and y [B,T,D]. `call` is a `LayerCall`;
        `score(q, k, projections) -> q, k, bias` puts positions into scores; `state` is a decode state to read,
        leaves [B,...], or None; with `context.segment_memory`, states [B,M,D] that were read before x
    start: (options, output, slots) -> the decode state after a prefill, leaves [R,B,...] of R layers, with room for
        `slots` tokens; of a decode state, the same with more room
    write: (state, output, length) -> the decode state with the output of an extension, written behind `length` tokens
    rewinds: (state) -> whether later tokens are forgotten where the length of the cache is set back
    """

    specs: Callable[..., Any]
    prepare: Callable[..., Any]
    forward: Callable[..., Any]
    start: Callable[..., Any] = cannot_start
    write: Callable[..., Any] = replace_state
    rewinds: Callable[[Any], bool] = cannot_rewind


def mixer_of(options: MixerOptions) -> Mixer:
    """The functions of the mixer that options describe."""
    return variants.load(options).MIXER
