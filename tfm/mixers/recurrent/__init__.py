"""Mixers that read a text token by token, with a state of constant size."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import reshard

from tfm.attention.context import AttentionContext, LayerCall, MixerOutput, refuse, refuse_scores
from tfm.attention.padding import valid_tokens_and_segments
from tfm.config.mixers.recurrent import Recurrent as RecurrentOptions
from tfm.config.model import Config
from tfm.ops import Linear, linear, linear_specs
from tfm.params import weight_spec
from tfm.sharding import replicate_length


@struct.dataclass
class Recurrent:
    """Parameters of n directions, with g gates of r units.

    input: [D,n,g,r], what gates read of a token
    hidden: [n,r,g,r], what gates read of the state; without a bias
    output: [n,r,D]
    """

    input: Linear
    hidden: Array
    output: Linear


@struct.dataclass
class State:
    """What is known of the tokens so far, float32 [n,B,r]; GRUs have no cells. A decode state is [B,r]."""

    hidden: Array
    cell: Array | None = None


class Prepared(NamedTuple):
    """The context of a pass; bool [B or 1,T], which places hold tokens; and int32 [B or 1,T], the segment of each.

    None: all are tokens, and of one segment.
    """

    context: AttentionContext
    valid: Array | None
    segments: Array | None


# (what gates read of a token [n,B,g,r] and of the state [n,B,g,r], the state) -> the next state, all float32
Step = Callable[[Array, Array, State], State]


def recurrent_specs(options: RecurrentOptions, config: Config, gates: int) -> Recurrent:
    """The spec tree of one layer."""
    sizes: dict[str, Any] = {"n": 1 + options.bidirectional, "r": options.size or config.width}
    hidden = weight_spec(config, "nrgs", g=gates, s=sizes["r"], **sizes)
    return Recurrent(
        input=linear_specs(config, "D", "ngr", g=gates, **sizes),
        hidden=replace(hidden, init=orthogonal),
        output=linear_specs(config, "nr", "D", branch=True, **sizes),
    )


def orthogonal(key: Array, shape: tuple[int, ...], sharding: Any) -> Array:
    """[...,r,g,r]: an orthogonal matrix for each gate, so that states neither grow nor vanish (Saxe et al. 2014)."""
    *stack, size, gates, _ = shape
    matrices = jnp.linalg.qr(jax.random.normal(key, (*stack, gates, size, size)))[0]
    matrices = jnp.swapaxes(matrices, -3, -2)
    return matrices if sharding is None else reshard(matrices, sharding)


def prepare(options: RecurrentOptions, config: Config, context: AttentionContext) -> Prepared:
    """The tokens of a pass. Raises ValueError for masks of pairs, and for two directions in a decoder."""
    if context.causal and options.bidirectional:
        refuse(options, "with bidirectional=true reads later tokens", "a decoder needs mixer.bidirectional=false")
    valid, segments = valid_tokens_and_segments(options, context)
    return Prepared(context, valid, None if segments is None else replicate_length(segments))


def read(call: LayerCall, x: Array, state: State | None, step: Step, has_cell: bool) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D], and the state [B,r] after it.

    The second direction reads the tokens from right to left. A state starts at zeros in every segment, and padding
    leaves it as it is.
    """
    refuse_scores(call)
    layer, prepared = call.params, call.prepared
    gates = linear(layer.input, "BTD,Dngr->BTngr", replicate_length(x))
    gates = _flip_second(jnp.moveaxis(gates, (1, 2), (0, 1)))
    if state is None:
        zeros = jnp.zeros_like(gates[0, :, :, 0], jnp.float32)
        state = State(zeros, zeros if has_cell else None)
    else:
        state = jax.tree.map(lambda leaf: leaf[None], state)
    last, hidden = jax.lax.scan(partial(_token, step, layer.hidden.astype(x.dtype)), state, _inputs(gates, prepared))
    hidden = jnp.moveaxis(_flip_second(hidden), (0, 1), (1, 2))
    y = linear(layer.output, "BTnr,nrD->BTD", hidden)
    return y, MixerOutput(state=jax.tree.map(lambda leaf: leaf[0], last) if prepared.context.keep else None)


def _token(step: Step, kernel: Array, state: State, inputs: tuple[Array, Array | None, Array | None]):
    """The state after one token, and what the next layer reads of it."""
    gates, starts, valid = inputs
    if starts is not None:
        state = jax.tree.map(lambda leaf: jnp.where(starts[..., None], 0, leaf), state)
    hidden = state.hidden.astype(kernel.dtype)
    products = jnp.einsum("nBr,nrgs->nBgs", hidden, kernel, preferred_element_type=jnp.float32)
    after = step(gates.astype(jnp.float32), products, state)
    if valid is not None:
        after = jax.tree.map(lambda new, old: jnp.where(valid[..., None], new, old), after, state)
    return after, after.hidden.astype(kernel.dtype)


def _inputs(gates: Array, prepared: Prepared) -> tuple[Array, Array | None, Array | None]:
    """What each step reads, [T,n,...]: gates, whether a segment starts [n,B or 1], whether it is a token [n,B or 1]."""
    starts = valid = None
    if prepared.segments is not None:
        change = prepared.segments[:, 1:] != prepared.segments[:, :-1]
        ends = [jnp.pad(change, ((0, 0), side)) for side in ((1, 0), (0, 1))]
        starts = _flip_second(jnp.stack([end.T for end in ends[: gates.shape[1]]], axis=1))
    if prepared.valid is not None:
        valid = _flip_second(jnp.stack([prepared.valid.T] * gates.shape[1], axis=1))
    return gates, starts, valid


def _flip_second(x: Array) -> Array:
    """x [T,n,...] with the time of the second direction reversed: its own inverse."""
    return x if x.shape[1] == 1 else jnp.stack([x[:, 0], jnp.flip(x[:, 1], 0)], axis=1)


def last_state(options: RecurrentOptions, output: State, slots: int) -> State:
    """The state after a prefill: it has the same size for any number of slots."""
    return output
