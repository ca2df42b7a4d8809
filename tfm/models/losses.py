"""Logits over the vocabulary, and the losses and gradients that can be had without keeping them."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec, reshard

from tfm.axes import platform
from tfm.config.model import Config
from tfm.masks import MASK_VALUE
from tfm.ops import einsum
from tfm.sharding import mesh_axes, named_sharding, spec_of, unshard_fsdp


def unembed(config: Config, table: Array, x: Array) -> Array:
    """x [B,M,D] times the table [V,D] -> float32 logits [B,M,V]; rows that only pad the vocabulary can never be chosen."""
    logits = einsum("BMD,VD->BMV", x, table, dtype=jnp.float32)
    if config.vocab == config.padded_vocab:
        return logits
    return jnp.where((jnp.arange(config.padded_vocab) < config.vocab)[None, None], logits, MASK_VALUE)


def cross_entropy(logits: Array, targets: Array, smoothing: Array | float = 0.0, vocab: int | None = None) -> Array:
    """logits [...,V] and targets [...] -> float32 [...]: -log softmax(logits)[target], in nats. Targets are in the vocabulary.

    `smoothing`, a number or [...], of the probability is spread over the first `vocab` tokens alike (Szegedy et al. 2016, section 7).
    """
    logits = logits.astype(jnp.float32)
    if spec_of(logits)[-1] is None:
        chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    else:  # a gather cannot cross shards of the vocabulary, a sum can
        places = jnp.expand_dims(jnp.arange(logits.shape[-1]), range(targets.ndim))
        chosen = jnp.where(places == targets[..., None], logits, 0).sum(-1)
    if not isinstance(smoothing, float) or smoothing:
        real = jnp.arange(logits.shape[-1]) < (vocab or logits.shape[-1])
        chosen = (1 - smoothing) * chosen + smoothing * logits.mean(
            -1, where=jnp.expand_dims(real, range(targets.ndim))
        )
    return jax.nn.logsumexp(logits, axis=-1) - chosen


def vocabulary_loss(
    config: Config,
    table: Array,
    x: Array,
    targets: Array,
    weights: Array,
    smoothing: Array | float = 0.0,
    bias: Array | None = None,
) -> tuple[Array, Array, Array]:
    """x [B,T,D], table [V,D], targets and weights [B,T] -> a sum of losses in nats, float32, and for each target, its loss and whether no
    other token is as probable, bool [B,T].

    The losses are those of `cross_entropy(unembed(config, table, x) + bias, targets, smoothing, config.vocab)`, but all logits are never
    there at once: losses, and the gradient of the sum of `weights` times losses, are computed for some tokens at a time. Only that sum
    has a gradient, for x, table, bias and weights. `smoothing` is a number or [B,T].
    """
    table = unshard_fsdp(table)
    bias = None if bias is None else unshard_fsdp(bias).astype(jnp.float32)
    spread = (
        None
        if isinstance(smoothing, float) and not smoothing
        else jnp.broadcast_to(jnp.asarray(smoothing), targets.shape)
    )
    given, sharding = (targets, weights, spread), named_sharding(x, table, *spec_of(x)[:2])
    given = given if sharding is None else jax.tree.map(lambda each: reshard(each, sharding), given)
    return _loss(config, x, table, bias, given)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _loss(config: Config, x: Array, table: Array, bias: Array | None, given) -> tuple[Array, Array, Array]:
    return _on_shards(config, False, x, table, bias, given)[0]


def _forward(config: Config, x: Array, table: Array, bias: Array | None, given):
    found, gradients = _on_shards(config, True, x, table, bias, given)
    return found, (*gradients, found[1])


def _backward(config: Config, gradients, cotangents):
    """The gradients of the sum, made when it was: of a weight, it is the loss. Nothing else has one."""
    *of_inputs, of_weights = jax.tree.map(lambda gradient: gradient * cotangents[0].astype(gradient.dtype), gradients)
    return *of_inputs, (None, of_weights, None)


_loss.defvjp(_forward, _backward)


def _on_shards(config: Config, learn: bool, x: Array, table: Array, bias: Array | None, given):
    """`_local` on each device, with its tokens and its part of the vocabulary."""
    places, axis = spec_of(x)[:2], spec_of(table)[0]
    sharding = named_sharding(x, table, *places)
    if sharding is None:
        return _local(config, learn, Axes(), x, table, bias, given)
    tokens, words = PartitionSpec(*places), PartitionSpec(axis)
    return jax.shard_map(
        partial(_local, config, learn, Axes(mesh_axes(places), axis)),
        mesh=sharding.mesh,
        in_specs=(tokens, words, words, tokens),
        out_specs=((PartitionSpec(), tokens, tokens), (tokens, words, words) if learn else ()),
        check_vma=False,
    )(x, table, bias, given)


class Axes(NamedTuple):
    """Along which mesh axes the devices have other tokens, and along which one they have the rest of the vocabulary."""

    tokens: tuple[str, ...] = ()
    vocabulary: str | None = None

    def total(self, sums: Array) -> Array:
        """Sums over the tokens of all devices."""
        return jax.lax.psum(sums, self.tokens) if self.tokens else sums

    def add(self, sums: Array) -> Array:
        """Sums over the whole vocabulary."""
        return jax.lax.psum(sums, self.vocabulary) if self.vocabulary else sums

    def most(self, largest: Array) -> Array:
        """The largest in the whole vocabulary."""
        return jax.lax.pmax(largest, self.vocabulary) if self.vocabulary else largest

    def pick(self, logits: Array, targets: Array) -> Array:
        """Of logits [V,N] those of targets [1,N], and 0 where another device has them."""
        place = targets - self.first(len(logits))
        there = (place >= 0) & (place < len(logits))
        return jnp.where(there, jnp.take_along_axis(logits, place, axis=0, mode="clip"), 0)

    def first(self, size: int) -> Array | int:
        """The first token of a device that has `size` of them."""
        return jax.lax.axis_index(self.vocabulary) * size if self.vocabulary else 0


def _local(config: Config, learn: bool, axes: Axes, x: Array, table: Array, bias: Array | None, given):
    """The sum, losses and hits, and the gradients for x, table and bias if they are to be learned, part by part.

    Logits are [V,N], tokens last (M11: 0.77 of the time). To save a pass over them, the target's logit is looked up and
    compared with the largest of the others.
    """
    kernel, add = table.astype(x.dtype), axes.add
    places = (axes.first(len(table)) + jnp.arange(len(table)))[:, None]
    real, shift = places < config.vocab, None if bias is None else bias[:, None]
    if config.vocab < config.padded_vocab:
        shift = jnp.where(real, 0.0 if shift is None else shift, MASK_VALUE)

    def part(sums, inputs):
        x, given = inputs
        targets, weights, spread = jax.tree.map(lambda each: each[None], given)
        logits = jnp.einsum("VD,ND->VN", kernel, x, preferred_element_type=jnp.float32)
        logits, hit = logits if shift is None else logits + shift, places == targets
        chosen = add(axes.pick(logits, targets))
        others = axes.most(jnp.where(hit, MASK_VALUE, logits).max(0, keepdims=True))
        top = jnp.maximum(chosen, others)
        powers = jnp.exp(logits - top)
        mass = add(powers.sum(0, keepdims=True))
        kept = 1.0 if spread is None else 1 - spread
        wanted = (
            chosen
            if spread is None
            else kept * chosen + spread * add(jnp.where(real, logits, 0).sum(0, keepdims=True)) / config.vocab
        )
        losses, right = jnp.log(mass) + top - wanted, chosen > others
        found = {"total": (losses * weights).sum()}
        if not learn:
            return jax.tree.map(jnp.add, sums, found), (losses[0], right[0])
        slopes = powers / mass - jnp.where(hit, kept, 0)
        slopes -= 0 if spread is None else jnp.where(real, spread / config.vocab, 0)
        slopes = slopes * weights
        found["bias"], slopes = None if bias is None else slopes.sum(1), slopes.astype(x.dtype)
        found["table"] = jnp.einsum("VN,ND->VD", slopes, x, preferred_element_type=jnp.float32)
        return jax.tree.map(jnp.add, sums, found), (losses[0], right[0], add(jnp.einsum("VN,VD->ND", slopes, kernel)))

    zeros: dict[str, Array | None] = {"total": jnp.zeros(())}
    if learn:
        zeros |= {"bias": None if bias is None else jnp.zeros(len(table)), "table": jnp.zeros(table.shape)}
    sums, found = _in_parts(part, zeros, (x, given), len(table))
    sums = jax.tree.map(axes.total, sums)
    gradients = (found[2], sums["table"].astype(table.dtype), sums["bias"]) if learn else ()
    return (sums["total"], found[0], found[1]), gradients


def tokens_at_a_time(vocab: int, width: int) -> int:
    """How many tokens meet the vocabulary at once.

    On a CPU their logits should stay in its cache, but each chunk adds to a gradient as wide as the vocabulary (M12).
    Elsewhere memory is the limit, and products should be large.
    """
    return max((1 << 20) // vocab, width) if platform() == "cpu" else max((1 << 27) // vocab, 1)


def _in_parts(part, sums, inputs, vocab: int):
    """Scans over the tokens of fields [B,T,...], as many at a time as their logits [N,V] allow."""
    shape = inputs[0].shape[:2]
    tokens = math.prod(shape)
    parts = -(-tokens // tokens_at_a_time(vocab, inputs[0].shape[-1]))
    size = -(-tokens // parts)

    def cut(field):
        field = field.reshape(tokens, *field.shape[2:])
        return jnp.pad(field, ((0, parts * size - tokens), *[(0, 0)] * (field.ndim - 1))).reshape(
            parts, size, *field.shape[1:]
        )

    if parts == 1:
        sums, found = part(sums, jax.tree.map(lambda field: cut(field)[0], inputs))
        return sums, [field.reshape(*shape, *field.shape[1:]) for field in found]
    sums, found = jax.lax.scan(part, sums, jax.tree.map(cut, inputs))
    return sums, [
        field.reshape(parts * size, *field.shape[2:])[:tokens].reshape(*shape, *field.shape[2:]) for field in found
    ]
