"""Candidates of a beam: texts that are one token longer, those of them that go on, and those that have ended."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Candidates(NamedTuple):
    """Continuations of one group, each one token longer than its parent, the best first.

    tokens [B,C,N]; logprobs [B,C]; ranks [B,C] are logprobs less the cost of diversity; parents [B,C] are places in the
    group; last [B,C] is the new token.
    """

    tokens: Array
    logprobs: Array
    ranks: Array
    parents: Array
    last: Array


def best_candidates(
    tokens: Array, logprobs: Array, length: Array, next_logprobs: Array, is_stop: Array, cost: Array
) -> Candidates:
    """Texts tokens [B,W,N] with logprobs [B,W] and one `length` -> the 2W best ways to add a token.

    next_logprobs [B,W,V] are those of the token, cost [B,V] is what diversity subtracts from them, is_stop [V]. Every
    text ends in at most one candidate, so that at least W of 2W go on.
    """
    rows, width, vocab = next_logprobs.shape
    total = logprobs[..., None] + _best_stop_only(next_logprobs, is_stop)
    ranks, index = jax.lax.top_k((total - cost[:, None]).reshape(rows, -1), 2 * width)
    parents = index // vocab
    last = index % vocab
    texts = jax.lax.dynamic_update_slice_in_dim(take(tokens, parents), last[..., None], length, axis=2)
    return Candidates(texts, take(total.reshape(rows, -1), index), ranks, parents, last)


def _best_stop_only(logprobs: Array, is_stop: Array) -> Array:
    """[B,W,V] -> [B,W,V]: -inf for all stop tokens but the most probable one: a text has one end at most."""
    stop_logprobs = jnp.where(is_stop[None, None], logprobs, -jnp.inf)
    return jnp.where(is_stop[None, None] & (logprobs < stop_logprobs.max(-1, keepdims=True)), -jnp.inf, logprobs)


def follow(candidates: Candidates, is_ended: Array, width: int) -> Candidates:
    """The best `width` candidates that have not ended; an empty slot has logprob and rank -inf."""
    ranks, order = jax.lax.top_k(jnp.where(is_ended, -jnp.inf, candidates.ranks), width)
    followed = Candidates(*(take(field, order) for field in candidates))
    return followed._replace(ranks=ranks, logprobs=jnp.where(ranks > -jnp.inf, followed.logprobs, -jnp.inf))


class Finished(NamedTuple):
    """The best ended continuations of each group: tokens [B,G,W,N], other fields [B,G,W]. An empty slot scores -inf."""

    tokens: Array
    logprobs: Array
    scores: Array
    lengths: Array


def is_broken(logits: Array) -> Array:
    """Logits [B,W,V] -> bool [B]: whether a token has no probability that could be compared."""
    return (jnp.isnan(logits) | (logits == jnp.inf)).any((1, 2))


def merge(finished: Finished, added: Finished) -> Finished:
    """The best of both, as many as `finished` has slots; the slots are the last axis of `scores`."""
    axis = finished.scores.ndim - 1
    joined = Finished(*(jnp.concatenate(fields, axis=axis) for fields in zip(finished, added, strict=True)))
    _, order = jax.lax.top_k(joined.scores, finished.scores.shape[-1])
    return Finished(*(take(field, order, axis) for field in joined))


def take(values: Array, index: Array, axis: int = 1) -> Array:
    """values [..., n, ...] at index [..., m] of that axis; the axes before it are shared."""
    return jnp.take_along_axis(values, jnp.expand_dims(index, range(axis + 1, values.ndim)), axis=axis)


def repeat_axis(leaf: Array, width: int, axis: int) -> Array:
    """leaf [..., B, ...] -> [..., B * width, ...]; B stands at `axis`."""
    shape = leaf.shape
    leaf = jnp.broadcast_to(jnp.expand_dims(leaf, axis + 1), (*shape[: axis + 1], width, *shape[axis + 1 :]))
    return leaf.reshape(*shape[:axis], -1, *shape[axis + 1 :])


def take_parents(leaf: Array, parents: Array, axis: int) -> Array:
    """leaf [..., B*W, ...] -> the same shape: row w of prompt b becomes row parents[b, w]; B*W stands at `axis`."""
    shape = leaf.shape
    grouped = leaf.reshape(*shape[:axis], *parents.shape, *shape[axis + 1 :])
    index = jnp.expand_dims(parents, (*range(axis), *range(axis + 2, grouped.ndim)))
    return jnp.take_along_axis(grouped, index, axis=axis + 1).reshape(shape)
