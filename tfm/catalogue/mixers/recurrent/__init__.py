"""Mixers that read a text token by token, with a state of constant size."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import NamedSharding, reshard

from tfm.catalogue.mixers.padding import SegmentedContext, valid_tokens_and_segments
from tfm.catalogue.options.mixers.recurrent import RecurrentOptions
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, MixerOutput, refuse, refuse_scores
from tfm.ops import Linear, linear, linear_specs
from tfm.params import bias_spec, weight_spec
from tfm.sharding import replicate_length


@struct.dataclass
class Recurrent:
    """Parameters of n directions, with g gates of r units.

    input: [D,n,g,r], what gates read of a token; [n,d,g,r] where each direction reads its own half of the stream
    hidden: [n,s,g,r], what gates read of the state; without a bias
    output: [n,s,D]; None where states are the stream
    projection: [n,r,s], from units to the state, or None
    condition: [D,n,g,r], what gates read of the vector of another text, or None; without a bias
    """

    input: Linear
    hidden: Array
    output: Linear | None
    projection: Array | None = None
    condition: Linear | None = None


@struct.dataclass
class RecurrentState:
    """What is known of the tokens so far, float32: hidden [n,B,s] and cell [n,B,r]; GRUs have no cells.

    A decode state has no n.
    """

    hidden: Array
    cell: Array | None = None


@struct.dataclass
class ConditionedContext(AttentionContext):
    """A pass whose layers also read a vector of another text: condition [B,D]."""

    condition: Array | None = None


# (what gates read of a token [n,B,g,r] and of the state [n,B,g,r], the state, the kernel of the projection or None) ->
# the next state, all float32 but the kernel
Step = Callable[[Array, Array, RecurrentState, Array | None], RecurrentState]


def recurrent_specs(options: RecurrentOptions, config: Config, gates: int) -> Recurrent:
    """The spec tree of one layer."""
    units, state = options.units(config.width), options.state_size(config.width)
    sizes: dict[str, Any] = {"n": options.directions, "r": units, "s": state}
    of_gates = sizes | {"g": gates, "d": config.width // options.directions}
    bias = bias_spec(config, "ngr", **of_gates) if config.bias else None
    axes, inputs = ("ndgr", 2) if options.separate else ("Dngr", 1)
    hidden = weight_spec(config, "nsgr", inputs=2, **of_gates)
    return Recurrent(
        input=Linear(weight_spec(config, axes, inputs=inputs, **of_gates), bias),
        hidden=replace(hidden, init=orthogonal),
        output=linear_specs(config, "ns", "D", branch=True, **sizes) if options.output else None,
        projection=weight_spec(config, "nrs", inputs=2, **sizes) if options.has_projection else None,
        condition=linear_specs(config, "D", "ngr", bias=False, **of_gates) if options.condition else None,
    )


def orthogonal(key: Array, shape: tuple[int, ...], sharding: NamedSharding | None) -> Array:
    """[...,s,g,r]: orthogonal rows or columns for each gate, so that states neither grow nor vanish (Saxe et al.
    2014)."""
    *stack, size, gates, units = shape
    matrices = _reflections(jax.random.normal(key, (*stack, gates, max(size, units), max(size, units))))
    matrices = jnp.swapaxes(matrices[..., :size, :units], -3, -2)
    return matrices if sharding is None else reshard(matrices, sharding)


def _reflections(vectors: Array) -> Array:
    """Normal vectors [...,n,n] -> random orthogonal matrices [...,n,n]: products of reflections by vectors of n, n - 1
    and so on elements (Stewart 1980, section 3).

    On a CPU with several devices, a program with LAPACK's QR decomposition never ends.
    """
    size = vectors.shape[-1]

    def reflect(matrices: Array, inputs: tuple[Array, Array]) -> tuple[Array, None]:
        first, vector = inputs
        vector = jnp.where(jnp.arange(size) < first, 0, vector)
        vector /= jnp.sqrt(jnp.square(vector).sum(-1, keepdims=True))
        products = jnp.einsum("...i,...ij->...j", vector, matrices, precision="highest")
        return matrices - 2 * vector[..., :, None] * products[..., None, :], None

    start = jnp.broadcast_to(jnp.eye(size), vectors.shape)
    return jax.lax.scan(reflect, start, (jnp.arange(size), jnp.moveaxis(vectors, -2, 0)))[0]


def prepare(call: LayerCall[RecurrentOptions, None, None], context: AttentionContext) -> SegmentedContext:
    """The tokens of a pass.

    Raises VariantError for masks of pairs, for two directions in a decoder, and where the vector of a text is missing.
    """
    if context.causal and call.options.bidirectional:
        refuse(call.options, "with bidirectional=true reads later tokens", "a decoder needs mixer.bidirectional=false")
    if call.options.condition and not isinstance(context, ConditionedContext):
        refuse(
            call.options, "with condition=true reads a vector of another text, and this model has none", "leave it out"
        )
    valid, segments = valid_tokens_and_segments(call.options, context)
    return SegmentedContext(context, valid, None if segments is None else replicate_length(segments))


def read(
    call: LayerCall, x: Array, state: RecurrentState | None, step: Step, has_cell: bool
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D], and the state [B,s] after it.

    The second direction reads the tokens from right to left. A state starts at zeros in every segment, and padding
    leaves it as it is.
    """
    refuse_scores(call)
    layer, prepared = call.params, call.prepared
    gates = _flip_second(jnp.moveaxis(_gates(call, replicate_length(x)), (1, 2), (0, 1)))
    if state is None:
        zeros = jnp.zeros_like(gates[0, :, :, 0], jnp.float32)
        size = layer.hidden.shape[1]
        hidden = zeros if size == zeros.shape[-1] else jnp.repeat(zeros[..., :1], size, axis=-1)
        state = RecurrentState(hidden, zeros if has_cell else None)
    else:
        state = jax.tree.map(lambda leaf: leaf[None], state)
    projection = None if layer.projection is None else layer.projection.astype(x.dtype)
    token = partial(_token, step, layer.hidden.astype(x.dtype), projection)
    last, hidden = jax.lax.scan(token, state, _inputs(gates, prepared))
    y = jnp.moveaxis(_flip_second(hidden), (0, 1), (1, 2))
    if layer.output is None:
        y = jnp.concatenate([y[:, :, direction] for direction in range(y.shape[2])], axis=-1)
    else:
        y = linear(layer.output, "BTns,nsD->BTD", y)
    return y, MixerOutput(state=jax.tree.map(lambda leaf: leaf[0], last) if prepared.context.keep else None)


def _gates(call: LayerCall, x: Array) -> Array:
    """x [B,T,D] -> [B,T,n,g,r], what the gates of each direction read of a token, and of the vector of another text."""
    layer, context = call.params, call.prepared.context
    if call.options.separate:
        halves = jnp.stack(jnp.split(x, 2, axis=-1), axis=2)
        gates = linear(layer.input, "BTnd,ndgr->BTngr", halves)
    else:
        gates = linear(layer.input, "BTD,Dngr->BTngr", x)
    if layer.condition is None:
        return gates
    return gates + linear(layer.condition, "BD,Dngr->Bngr", context.condition.astype(x.dtype))[:, None]


def _token(
    step: Step,
    kernel: Array,
    projection: Array | None,
    state: RecurrentState,
    inputs: tuple[Array, Array | None, Array | None],
):
    """The state after one token, and what the next layer reads of it."""
    gates, starts, valid = inputs
    if starts is not None:
        state = jax.tree.map(lambda leaf: jnp.where(starts[..., None], 0, leaf), state)
    hidden = state.hidden.astype(kernel.dtype)
    products = jnp.einsum("nBs,nsgr->nBgr", hidden, kernel, preferred_element_type=jnp.float32)
    after = step(gates.astype(jnp.float32), products, state, projection)
    if valid is not None:
        after = jax.tree.map(lambda new, old: jnp.where(valid[..., None], new, old), after, state)
    return after, after.hidden.astype(kernel.dtype)


def _inputs(gates: Array, prepared: SegmentedContext) -> tuple[Array, Array | None, Array | None]:
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


def last_state(options: RecurrentOptions, config: Config, output: RecurrentState, slots: int) -> RecurrentState:
    """The state after a prefill: it has the same size for any number of slots."""
    return output
