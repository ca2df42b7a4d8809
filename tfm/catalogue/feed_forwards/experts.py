"""Experts that tokens choose.

A row of four tokens, two experts of each token, and an expert that has room for three of them:

    token             0       1       2       3
    experts           a b     b c     a b     b a
    place in each     0 0     1 0     1 2     - 2       the fourth token of b goes without it
    choices in b      0 0, 1 0, 2 0                     which tokens it reads

Slots are filled token by token, so no token takes a place from one before it.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import NamedSharding

from tfm.auxiliary import LossPlace, attach_loss
from tfm.catalogue.feed_forwards import ExpertParams, expert_specs, of_slots, router_logits, with_shared
from tfm.catalogue.mixers.clustered.running import observe
from tfm.catalogue.mixers.padding import valid_of
from tfm.catalogue.options.feed_forwards import Experts
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, FeedForwardLayer, LayerCall
from tfm.params import running_spec
from tfm.sharding import replicate, replicate_length, reshape_rows, take_positions

# How much of the measured load stays in a step.
MOMENTUM = 0.9


@struct.dataclass
class RoutedParams:
    """Parameters of experts, and float32 [x], the running share of tokens that each of them gets."""

    experts: ExpertParams
    load: LossPlace


class Choice(NamedTuple):
    """Experts of tokens: int32 [B,T,k], X for padding; the weight of each, float32 [B,T,k]; the router's probabilities,
    float32 [B,T,X]; and the logarithms of their denominators [B,T]."""

    experts: Array
    gates: Array
    probabilities: Array
    log_sums: Array


def specs(options: Experts, config: Config) -> RoutedParams:
    """The spec tree of a layer; every expert starts with an even share of the load."""

    def even(key: Array, shape: tuple[int, ...], sharding: NamedSharding | None) -> Array:
        return jnp.full(shape, 1 / options.experts, jnp.float32, out_sharding=sharding)

    load = running_spec(config, "x", even, x=options.experts)
    return RoutedParams(expert_specs(options, config), LossPlace(load))


def forward(call: LayerCall[Experts, RoutedParams, None], x: Array, context: AttentionContext) -> Array:
    """x [B,T,D] -> [B,T,D]: the sum of what the experts of a token make of it, each times its weight (Shazeer et al.
    2017, eq. 1)."""
    options, layer = call.options, call.params
    states, valid = replicate_length(x), valid_of(context)
    choice = choose(options, router_logits(layer.experts, states), valid)
    y = mixture(call, states, choice, slots_of(options, x.shape[1], context))
    y = with_shared(layer.experts, call.config, states, y)
    shares, loss = statistics(options, choice, valid)
    return observe(layer.load.observed, attach_loss(y, loss, layer.load), shares, MOMENTUM)


def choose(options: Experts, logits: Array, valid: Array | None) -> Choice:
    """The experts of every token, by the router's logits [B,T,X]."""
    probabilities = jax.nn.softmax(logits)
    gates, experts = jax.lax.top_k(probabilities, options.top_k)
    if options.renormalize and options.top_k > 1:
        gates = gates / gates.sum(-1, keepdims=True)
    if valid is not None:
        experts = jnp.where(valid[:, :, None], experts, options.experts)
        gates = jnp.where(valid[:, :, None], gates, 0)
    return Choice(experts, gates, probabilities, jax.nn.logsumexp(logits, -1))


def slots_of(options: Experts, length: int, context: AttentionContext) -> int:
    """The tokens of a row that an expert has room for: all, without a limit and in generation."""
    slots = options.slots
    if options.capacity is not None:
        slots = math.ceil(options.capacity * options.top_k * length / options.experts)
    return length if slots is None or context.slots is not None else min(length, slots)


class Routes(NamedTuple):
    """Which slots tokens go to, and which tokens are in slots, for N = T * k choices of a row and S = X * C slots.

    slots: int32 [B,N], the slot of each choice
    is_taken: bool [B,N], whether it has one
    choices: int32 [B,S], the choice in each slot
    is_filled: bool [B,S], whether there is one
    """

    slots: Array
    is_taken: Array
    choices: Array
    is_filled: Array


def mixture(call: LayerCall[Experts, RoutedParams, None], x: Array, choice: Choice, size: int) -> Array:
    """x [B,T,D] -> [B,T,D], where every expert has `size` slots."""
    options, (rows, length, width) = call.options, x.shape
    count, k = options.experts, options.top_k
    routes = routes_of(reshape_rows(choice.experts, rows, length * k), count, size)
    slots = reshape_rows(to_slots(x, routes), rows, count, size, width)
    outputs = of_slots(call.params.experts, call.config, slots, min(1.0, length * k / (count * size)))
    y = to_choices(reshape_rows(outputs, rows, count * size, width), routes)
    y = y * reshape_rows(choice.gates, rows, length * k, 1).astype(y.dtype)
    return reshape_rows(y, rows, length, k, width).sum(2)


def routes_of(chosen: Array, count: int, size: int) -> Routes:
    """The routes of the experts [B,N] that tokens have chosen, token by token."""
    is_of = (chosen[:, :, None] == jnp.arange(count)[None, None]).astype(jnp.int32)  # [B,N,X]
    place = ((jnp.cumsum(is_of, 1) - 1) * is_of).sum(-1)
    is_taken = (place < size) & (chosen < count)
    totals = is_of.sum(1)  # [B,X]
    index = (jnp.cumsum(totals, 1) - totals)[:, :, None] + jnp.arange(size)[None, None]  # [B,X,C]
    is_filled = jnp.arange(size)[None, None] < totals[:, :, None]
    shape = len(chosen), count * size
    is_filled, index = reshape_rows(is_filled, *shape), reshape_rows(jnp.where(is_filled, index, 0), *shape)
    order = jnp.argsort(chosen, axis=1, stable=True)
    choices = take_positions(order[..., None], index)[..., 0]
    return Routes(jnp.where(is_taken, chosen * size + place, 0), is_taken, choices, is_filled)


@jax.custom_vjp
def to_slots(x: Array, routes: Routes) -> Array:
    """x [B,T,D] -> [B,S,D], the tokens in their slots, zeros in empty ones. Its gradient gathers, as it does: XLA adds
    up scattered rows one by one."""
    k = routes.slots.shape[1] // x.shape[1]
    return jnp.where(routes.is_filled[..., None], take_positions(x, routes.choices // k), 0)


@jax.custom_vjp
def to_choices(y: Array, routes: Routes) -> Array:
    """y [B,S,D] -> [B,N,D], what is in the slot of each choice; zeros where it has none."""
    return jnp.where(routes.is_taken[..., None], take_positions(y, routes.slots), 0)


def _to_slots_forward(x: Array, routes: Routes) -> tuple[Array, tuple[Routes, Array]]:
    return to_slots(x, routes), (routes, x[:, :, :0])


def _to_slots_backward(kept: tuple[Routes, Array], dy: Array) -> tuple[Array, None]:
    routes, (rows, length, _) = kept[0], kept[1].shape
    return reshape_rows(to_choices(dy, routes), rows, length, -1, dy.shape[-1]).sum(2), None


def _to_choices_forward(y: Array, routes: Routes) -> tuple[Array, Routes]:
    return to_choices(y, routes), routes


def _to_choices_backward(routes: Routes, dy: Array) -> tuple[Array, None]:
    return jnp.where(routes.is_filled[..., None], take_positions(dy, routes.choices), 0), None


to_slots.defvjp(_to_slots_forward, _to_slots_backward)
to_choices.defvjp(_to_choices_forward, _to_choices_backward)


def statistics(options: Experts, choice: Choice, valid: Array | None) -> tuple[Array, Array]:
    """float32 [X], the share of the choices of all tokens that each expert gets; and [], the losses of the router.

    They are `balance` times X times the sum of shares times mean probabilities (Fedus et al. 2022, eq. 4 to 6), and `z`
    times the mean of squared logarithms (Zoph et al. 2022, eq. 5).
    """
    weights = jnp.ones_like(choice.log_sums)
    weights = weights if valid is None else weights * valid.astype(jnp.float32)
    total = jnp.maximum(weights.sum(), 1)
    is_of = choice.experts[..., None] == jnp.arange(options.experts)[None, None, None]  # [B,T,k,X]
    shares = is_of.astype(jnp.float32).sum((0, 1, 2)) / (total * options.top_k)
    means = (choice.probabilities * weights[..., None]).sum((0, 1)) / total
    balance = options.experts * (jax.lax.stop_gradient(shares) * means).sum()
    z = (jnp.square(choice.log_sums) * weights).sum() / total
    return replicate(shares), options.balance * balance + options.z * z


FEED_FORWARD = FeedForwardLayer(specs, forward)
