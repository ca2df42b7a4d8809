"""Candidates of a beam: texts that are one token longer, those of them that go on, and those that have ended."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from tfm.decoding.sampling import is_in
from tfm.masks.mask import MASK_VALUE

# Neighbours that `top_k` first compares by the largest of them.
BLOCK = 128


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


class NextTokens(NamedTuple):
    """What may follow the texts of a group, whose log-probabilities are logprobs [B,W].

    That of a token is values [B,W,V] less total [B,W]; tokens with at most `MASK_VALUE / 2` cannot come.
    """

    logprobs: Array
    values: Array
    total: Array

    def score(self, values: Array, parents: Array) -> Array:
        """values [B,n,m] of tokens behind parents [B,n] -> log-probabilities of the texts with them."""
        return take(self.logprobs, parents)[..., None] + next_logprobs(values, take(self.total, parents))


def next_logprobs(values: Array, total: Array) -> Array:
    """Logits [...,V] and the logarithm of their sum of exponentials [...] -> log-probabilities [...,V]; -inf for tokens
    that cannot come."""
    return jnp.where(values > MASK_VALUE / 2, values - total[..., None], -jnp.inf)


def best_candidates(
    tokens: Array, length: Array, following: NextTokens, stop: Array, cost: Array | None = None
) -> Candidates:
    """Texts tokens [B,W,N] of one `length` -> the 2W best ways to add a token.

    cost [B,V] is what diversity subtracts from log-probabilities, stop [n] are stop tokens and -1. Every text ends in
    at most one candidate, so that at least W of 2W go on.
    """
    rows, width, vocab = following.values.shape
    values = _best_stop_only(following.values, stop)
    ranked = values if cost is None else values - cost[:, None]
    ranks, index = top_k(ranked, following.score, 2 * width)
    parents, last = index // vocab, index % vocab
    logprobs = ranks
    if cost is not None:
        logprobs = following.score(take(values.reshape(rows, -1), index)[..., None], parents)[..., 0]
    texts = jax.lax.dynamic_update_slice_in_dim(take(tokens, parents), last[..., None], length, axis=2)
    return Candidates(texts, logprobs, ranks, parents, last)


def _best_stop_only(values: Array, stop: Array) -> Array:
    """[B,W,V] -> [B,W,V]: -inf for all stop tokens but the most probable one: a text has one end at most."""
    if len(stop) == 1:
        return values
    of_stop = jnp.take(values, stop, axis=-1, mode="clip")
    best = jnp.where((stop >= 0)[None, None], of_stop, -jnp.inf).max(-1, keepdims=True)
    return jnp.where(is_in(stop, values.shape[-1])[None, None] & (values < best), -jnp.inf, values)


def top_k(values: Array, score: Callable[[Array, Array], Array], k: int) -> tuple[Array, Array]:
    """values [B,W,V] -> the k largest scores and their indices w * V + v, both [B,k], as `jax.lax.top_k` has them.

    score: values [B,n,m] and their w [B,n] -> [B,n,m]; with one w it never falls where the value rises. So the largest
        values of blocks of neighbours have their largest scores, and only the best k blocks are scored
    """
    rows, width, vocab = values.shape
    size, texts = math.gcd(vocab, BLOCK), jnp.broadcast_to(jnp.arange(width), (rows, width))
    if size * k >= width * vocab:
        return jax.lax.top_k(score(values, texts).reshape(rows, -1), k)
    by_block = values.reshape(rows, width, -1, size)
    _, blocks = jax.lax.top_k(score(by_block.max(-1), texts).reshape(rows, -1), k)
    blocks = jnp.sort(blocks, axis=-1)  # of equal values the first one counts
    scores = score(take(by_block.reshape(rows, -1, size), blocks), blocks // (vocab // size))
    largest, index = jax.lax.top_k(scores.reshape(rows, -1), k)
    return largest, take(blocks, index // size) * size + index % size


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


def merge(finished: Finished, added: Finished) -> Finished:
    """The best of both, as many as `finished` has slots; the slots are the last axis of `scores`."""
    axis = finished.scores.ndim - 1
    joined = Finished(*(jnp.concatenate(fields, axis=axis) for fields in zip(finished, added, strict=True)))
    _, order = jax.lax.top_k(joined.scores, finished.scores.shape[-1])
    return Finished(*(take(field, order, axis) for field in joined))


def take(values: Array, index: Array, axis: int = 1) -> Array:
    """values [..., n, ...] at index [..., m] of that axis; the axes before it are shared."""
    return jnp.take_along_axis(values, jnp.expand_dims(index, range(axis + 1, values.ndim)), axis=axis)
