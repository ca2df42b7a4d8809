"""Beam search: the continuations with the highest probability that can be found when only the best few are followed."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.decoding.cache import Cache, extend, prefill
from tfm.decoding.generate import bucket, check, left_padded, stop_tokens
from tfm.decoding.sampling import Rules
from tfm.masks import MASK_VALUE
from tfm.models.encoder import Memory
from tfm.models.heads import CausalLM, next_logits
from tfm.sharding import mesh_of, replicate, shard_batch, shard_like


class Hypothesis(NamedTuple):
    """A continuation, the last token perhaps a stop token; its log-probability in nats, and that with the penalties of the search."""

    tokens: list[int]
    logprob: float
    score: float


@struct.dataclass
class Beam:
    """How to search.

    width: continuations that are followed
    groups: parts of the beam that avoid each other's tokens (Vijayakumar et al. 2018)
    diversity: what a token costs, in nats, for each time that an earlier group has chosen it at the same place
    length_penalty: alpha; a log-probability is divided by ((offset + length) / (offset + 1)) ** alpha (Wu et al. 2016, eq. 14)
    coverage: beta; what a translation costs whose words looked little at some of the source (the same equation); None does not watch that
    early: stop when as many continuations have ended as are followed, though others could still become better; with "likely", only
        where the best of these, ended here, would not be better
    offset: of length_penalty; 0 divides by length ** alpha, as transformers does
    rules: what comes before probability
    """

    width: int = struct.field(pytree_node=False, default=4)
    groups: int = struct.field(pytree_node=False, default=1)
    diversity: float | Array = 0.0
    length_penalty: float | Array = 0.0
    coverage: float | Array | None = None
    early: bool | str = struct.field(pytree_node=False, default=False)
    offset: float | Array = 5.0
    rules: Rules | None = None

    def check(self):
        """Raises ValueError for what makes no sense."""
        if self.width < 1 or self.groups < 1 or self.width % self.groups:
            raise ValueError(f"groups={self.groups} must divide width={self.width}, and both must be at least 1")
        if not 0 <= self.diversity < np.inf:
            raise ValueError(f"diversity={self.diversity} must not be negative, and finite")
        if self.early not in (True, False, "likely"):
            raise ValueError(f"early={self.early} must be true, false or 'likely'")
        if self.coverage is not None and not 0 <= self.coverage < np.inf:
            raise ValueError(f"coverage={self.coverage} must not be negative, and finite; None for none")


def beam_search(
    model: CausalLM,
    config: Config,
    prompts: Sequence[Sequence[int]],
    new: int,
    how: Beam | None = None,
    stop: Sequence[int] = (),
    best: int = 1,
) -> list[list[Hypothesis]]:
    """For each prompt of token ids, its `best` continuations of at most `new` tokens, the best one first.

    A continuation ends with the first token of `stop`, or at `new` tokens; where several tokens stop, the most probable one ends it. There
    may be fewer than `best`: what groups find twice counts once. Programs are compiled as for `generate`, and for a width. Raises
    ValueError where learned positions do not suffice.
    """
    how = how or Beam()
    prompts = [[int(token) for token in prompt] for prompt in prompts]
    check(config, prompts, new, how, (Beam,))
    if not 1 <= best <= how.width:
        raise ValueError(f"best={best} must be at least 1 and at most the width of the beam, {how.width}")
    with mesh_of(model):
        ended = explore(config, bucket(new), model, left_padded(prompts), how, stop_tokens(stop), np.int32(new))
    tokens, logprobs, scores, lengths = (np.asarray(each) for each in ended)
    found = []
    for row in range(len(prompts)):
        order = (n for n in np.argsort(-scores[row], kind="stable") if np.isfinite(scores[row, n]))
        texts: dict[tuple[int, ...], int] = {}
        for n in order:
            texts.setdefault(tuple(tokens[row, n, : lengths[row, n]].tolist()), n)  # groups may find the same one
        ranked = list(texts.items())[:best]
        found.append([Hypothesis(list(text), float(logprobs[row, n]), float(scores[row, n])) for text, n in ranked])
    return found


class Ended(NamedTuple):
    """The best continuations of each row and group that have ended: tokens [B,G,W,N], the rest [B,G,W]; a free place scores -inf."""

    tokens: Array
    logprobs: Array
    scores: Array
    lengths: Array


@struct.dataclass
class Search:
    """Where a search stands: W continuations in each of G groups of each row.

    cache: of B * G * W rows, with every token but the last
    tokens: [B,G,W,N], the first `number` filled, and logprobs [B,G,W]; -inf where there are fewer continuations than places
    ended: those that have ended
    over: [B], rows for which nothing better can come
    number: scalar
    """

    cache: Cache
    tokens: Array
    logprobs: Array
    ended: Ended
    over: Array
    number: Array


@partial(jax.jit, static_argnums=(0, 1))
def explore(
    config: Config, room: int, model: CausalLM, given: tuple[Array, Array], how: Beam, stop: Array, new: Array
) -> Ended:
    """Prompts [B,T] and where they start [B] -> what has ended, its groups joined: [B,G*W,...]."""
    prompts, starts = given
    rows, length = prompts.shape
    memory = model.memory
    if memory is not None and how.coverage is not None:
        memory = replace(memory, seen=jnp.zeros(memory.valid.shape))
    hidden, cache = prefill(model.decoder, config, shard_batch(prompts), shard_batch(starts), length + room - 1, memory)
    shape = (rows, how.groups, how.width // how.groups)
    logprobs = jnp.broadcast_to(jnp.where(jnp.arange(shape[2]) == 0, 0, -jnp.inf)[None, None], shape)
    tokens, dead = jnp.zeros((*shape, room), jnp.int32), jnp.full(shape, -jnp.inf)
    ended = Ended(tokens, dead, dead, jnp.zeros(shape, jnp.int32))
    search = Search(_repeat(cache, how.width), tokens, logprobs, ended, jnp.zeros(rows, bool), jnp.int32(0))
    first = replicate(next_logits(model, config, hidden[:, -1:]))
    search = _select(how, search, jnp.broadcast_to(first, (rows, how.width, first.shape[-1])), stop, new)

    def step(search: Search) -> Search:
        last = jax.lax.dynamic_index_in_dim(search.tokens, search.number - 1, axis=3, keepdims=False).reshape(-1, 1)
        hidden, cache = extend(model.decoder, config, shard_like(last, search.cache.starts), search.cache)
        logits = replicate(next_logits(model, config, hidden)).reshape(rows, how.width, -1)
        return _select(how, replace(search, cache=cache), logits, stop, new)

    search = jax.lax.while_loop(lambda search: (search.number < new) & ~search.over.all(), step, search)
    still = jnp.where(search.over[:, None, None], -jnp.inf, search.logprobs)
    scores = still / _penalty(how, new) - _overlooked(how, search.cache, shape)
    ended = _merge(search.ended, Ended(search.tokens, still, scores, jnp.broadcast_to(new, shape)))
    return Ended(*(each.reshape(rows, how.width, *each.shape[3:]) for each in ended))


def _select(how: Beam, search: Search, logits: Array, stop: Array, new: Array) -> Search:
    """Each group, one after the other, goes on with its best candidates; logits [B,G*W,V] are those of the next token."""
    rows, groups, width = search.logprobs.shape
    logits = logits.reshape(rows, groups, width, -1)
    vocab, number = logits.shape[-1], search.number + 1
    logprobs = jnp.where(logits > MASK_VALUE / 2, jax.nn.log_softmax(logits, axis=-1), -jnp.inf)
    ends = (jnp.arange(vocab)[:, None] == stop[None]).any(1)
    if how.rules is not None:
        texts = search.tokens.reshape(-1, search.tokens.shape[-1])
        logprobs = how.rules(logprobs.reshape(-1, vocab), texts, search.number, ends).reshape(logprobs.shape)
    chosen, parts, overlooked = jnp.zeros((rows, vocab)), [], _overlooked(how, search.cache, search.logprobs.shape)
    for group in range(groups):
        total = search.logprobs[:, group, :, None] + _one_end(logprobs[:, group], ends)
        judged = (total - how.diversity * chosen[:, None]).reshape(rows, -1)
        ranks, places = jax.lax.top_k(judged, 2 * width)  # at most half of these end
        parent, token = places // vocab, places % vocab
        texts = _take(search.tokens[:, group], parent)
        texts = jax.lax.dynamic_update_slice_in_dim(texts, token[..., None], search.number, axis=2)
        logprob = _take(total.reshape(rows, -1), places)
        ending = ends[token]
        counted = ending & (jnp.arange(2 * width) < width)[None] & ~search.over[:, None]
        value = jnp.where(counted, logprob, -jnp.inf)
        scores = value / _penalty(how, number) - _take(overlooked[:, group], parent)
        finished = Ended(texts, value, scores, jnp.full(token.shape, number))
        ended = _merge(Ended(*(each[:, group] for each in search.ended)), finished)
        ranks, order = jax.lax.top_k(jnp.where(ending, -jnp.inf, ranks), width)
        followed = (
            _take(texts, order),
            jnp.where(ranks > -jnp.inf, _take(logprob, order), -jnp.inf),
            _take(parent, order) + group * width,
        )
        chosen += jnp.where((ranks > -jnp.inf)[..., None], jax.nn.one_hot(_take(token, order), vocab), 0).sum(1)
        parts.append((*followed, ended))
    texts, logprob, parents, ended = jax.tree.map(lambda *each: jnp.stack(each, axis=1), *parts)
    search = replace(
        search, tokens=texts, logprobs=logprob, ended=ended, cache=_reorder(search.cache, parents.reshape(rows, -1))
    )
    return replace(search, over=_over(how, search, number, new), number=number)


def _one_end(logprobs: Array, ends: Array) -> Array:
    """[B,W,V] with only the most probable of the tokens that end a text, so that at most one candidate of each continuation does."""
    best = jnp.where(ends[None, None], logprobs, -jnp.inf).max(-1, keepdims=True)
    return jnp.where(ends[None, None] & (logprobs < best), -jnp.inf, logprobs)


def _over(how: Beam, search: Search, number: Array, new: Array) -> Array:
    """[B]: no continuation that goes on can become better than all those that have ended; with `early`, there are enough of these."""
    worst = search.ended.scores.min((1, 2))
    if how.early is True:
        return search.over | (worst > -jnp.inf)
    lengths = number if how.early else jnp.where(jnp.asarray(how.length_penalty) > 0, new, number + 1)
    return search.over | (search.logprobs.max((1, 2)) / _penalty(how, lengths) <= worst)


def _merge(one: Ended, other: Ended) -> Ended:
    """The best of both, as many as `one` has places."""
    joined = Ended(*(jnp.concatenate(each, axis=one.scores.ndim - 1) for each in zip(one, other, strict=True)))
    _, order = jax.lax.top_k(joined.scores, one.scores.shape[-1])
    return Ended(*(_take(each, order, axis=one.scores.ndim - 1) for each in joined))


def _penalty(how: Beam, length: Array) -> Array:
    offset = jnp.asarray(how.offset, jnp.float32)
    return ((offset + jnp.asarray(length, jnp.float32)) / (offset + 1)) ** jnp.asarray(how.length_penalty, jnp.float32)


def _overlooked(how: Beam, cache: Cache, shape: tuple[int, ...]) -> Array:
    """What each continuation, of shape [B,G,W], is to pay for places of the source that have got less attention than a word's, in nats."""
    if cache.memory is None or cache.memory.seen is None:
        return jnp.zeros(shape)
    share = jnp.where(cache.memory.valid, jnp.clip(cache.memory.seen, 1e-9, 1), 1)
    return -jnp.asarray(how.coverage, jnp.float32) * replicate(jnp.log(share).sum(-1)).reshape(shape)


def _take(values: Array, places: Array, axis: int = 1) -> Array:
    """values [..., n, ...] at places [..., m] of that axis, all axes before it shared."""
    return jnp.take_along_axis(values, jnp.expand_dims(places, range(axis + 1, values.ndim)), axis=axis)


def _repeat(cache: Cache, width: int) -> Cache:
    """Every row of a cache `width` times."""

    def repeat(x, axis):
        shape = x.shape
        x = jnp.broadcast_to(jnp.expand_dims(x, axis + 1), (*shape[: axis + 1], width, *shape[axis + 1 :]))
        return x.reshape(*shape[:axis], -1, *shape[axis + 1 :])

    twice = {"keys": repeat(cache.keys, 1), "values": repeat(cache.values, 1), "starts": repeat(cache.starts, 0)}
    if cache.memory is None:
        return replace(cache, **twice)
    one = cache.memory
    seen = None if one.seen is None else repeat(one.seen, 0)
    return replace(
        cache, **twice, memory=Memory(repeat(one.keys, 1), repeat(one.values, 1), repeat(one.valid, 0), seen)
    )


def _reorder(cache: Cache, parents: Array) -> Cache:
    """The rows of a cache after each continuation [B,G*W] has taken the place of another one of the same prompt."""
    rows, width = parents.shape
    parents = shard_like(parents, cache.starts)

    def order(x):
        parts = x.reshape(x.shape[0], rows, width, *x.shape[2:])
        return jnp.take_along_axis(parts, jnp.expand_dims(parents, (0, *range(3, parts.ndim))), axis=2).reshape(x.shape)

    cache = replace(cache, keys=order(cache.keys), values=order(cache.values))
    if cache.memory is None or cache.memory.seen is None:
        return cache
    return replace(cache, memory=replace(cache.memory, seen=order(cache.memory.seen[None])[0]))
