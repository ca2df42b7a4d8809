"""Beam search: follows the most probable continuations of each prompt and returns the best of those that ended."""

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
from tfm.decoding.beam_strategy import Beam
from tfm.decoding.cache import (
    Cache,
    allocate_slots,
    extend,
    prefill,
    reorder_rows,
    repeat_rows,
    separate_cache,
    separate_layers,
)
from tfm.decoding.candidates import (
    Candidates,
    Finished,
    NextTokens,
    best_candidates,
    follow,
    is_in,
    merge,
    next_logprobs,
    take,
)
from tfm.decoding.checks import check_fits, check_prompts, check_strategy
from tfm.decoding.generate import bucket, left_padded, pad_stop
from tfm.models.heads import CausalLM, next_logits
from tfm.sharding import mesh_of, replicate, shard_batch, shard_like


class Hypothesis(NamedTuple):
    """A continuation, a list of tokens with its stop token; its log-probability in nats, and its score: that with all
    penalties, both float []."""

    tokens: list[int]
    logprob: float
    score: float


def beam_search(
    model: CausalLM,
    config: Config,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    strategy: Beam | None = None,
    stop: Sequence[int] = (),
    num_return_sequences: int = 1,
) -> list[list[Hypothesis]]:
    """Token ids of prompts -> the best continuations of each, up to `num_return_sequences`, the best first.

    A continuation ends with its first token of `stop`, or at `max_new_tokens`; of several stop tokens only the most
    probable one ends it. Duplicates from different groups count once. A prompt for which the model computes values that
    are not finite has none. strategy defaults to `Beam()`. Raises ValueError if a text can exceed the learned
    positions. Programs are compiled as in `generate`, per width, and for one stop token or several; for translations
    per length of the prompts. Slots are allocated for 16 new tokens, then for twice as many: a step moves all of them.
    """
    strategy = strategy or Beam()
    check_prompts(config, prompts, max_new_tokens, stop)
    prompts = [[int(token) for token in prompt] for prompt in prompts]
    check_strategy(strategy, (Beam,))
    check_fits(config, prompts, max_new_tokens, "or shorten the prompt")
    if not 1 <= num_return_sequences <= strategy.width:
        raise ValueError(
            f"num_return_sequences={num_return_sequences} must be at least 1 and at most width={strategy.width}"
        )
    padded = left_padded(prompts, exact=model.memory is not None)  # translations start with one or two tokens
    stops = pad_stop(stop) if len(stop) > 1 else pad_stop(stop)[:1]
    limits = Limits(jnp.asarray(stops), jnp.int32(max_new_tokens), jnp.int32(num_return_sequences))
    capacity, allocated = bucket(max_new_tokens), bucket(1)  # of new tokens
    with mesh_of(model):
        state, finished = search(config, capacity, allocated, model, padded, strategy, limits)
        while allocated < capacity:
            done, length = jax.device_get((state.done, state.length))
            if not _goes_on(done, length, max_new_tokens):
                break
            allocated *= 2
            state, finished = resume(config, allocated, model, state, strategy, limits)
    finished = jax.device_get(finished)
    return [_hypotheses(finished, row, num_return_sequences) for row in range(len(prompts))]


def _goes_on(done: Array, length: Array, limit: Array | int) -> Array:
    """Whether a row can change, and texts have fewer tokens than the limit."""
    return ~done.all() & (length < limit)


def _hypotheses(finished: Finished, row: int, count: int) -> list[Hypothesis]:
    """The best distinct continuations of one prompt; fields of `finished` are [B,G*W,...]."""
    best: dict[tuple[int, ...], Hypothesis] = {}
    for index in np.argsort(-finished.scores[row], kind="stable"):
        score = float(finished.scores[row, index])
        if np.isfinite(score):
            tokens = finished.tokens[row, index, : finished.lengths[row, index]].tolist()
            best.setdefault(tuple(tokens), Hypothesis(tokens, float(finished.logprobs[row, index]), score))
    return list(best.values())[:count]


class Limits(NamedTuple):
    """When texts and searches end.

    stop: int32 [n], stop tokens and -1
    max_new_tokens: int32 []
    returned: int32 [], continuations of each prompt that are asked for
    """

    stop: Array
    max_new_tokens: Array
    returned: Array


@struct.dataclass
class BeamState:
    """A search in progress: W continuations in each of G groups of each row.

    cache: decode states of B * G * W rows, of every token but the last
    tokens: int32 [B,G,W,N], of which the first `length` columns are filled
    logprobs: float32 [B,G,W]; -inf marks an empty slot
    finished: ended continuations
    done: bool [B], rows whose finished continuations cannot change
    broken: bool [B], rows for which the model has computed values that are not finite
    length: scalar
    """

    cache: Cache
    tokens: Array
    logprobs: Array
    finished: Finished
    done: Array
    broken: Array
    length: Array


@partial(jax.jit, static_argnums=(0, 1, 2))
def search(
    config: Config,
    capacity: int,
    allocated: int,
    model: CausalLM,
    prompts: tuple[Array, Array],
    strategy: Beam,
    limits: Limits,
) -> tuple[BeamState, Finished]:
    """Prompts [B,T] and their first columns [B] -> a search that is over or has added `allocated` tokens, and finished
    continuations as of now, groups joined: [B,G*W,...].

    `capacity` is the most that may come to be allocated.
    """
    tokens, starts = prompts
    rows, length = tokens.shape
    memory = model.memory
    if memory is not None and strategy.coverage is not None:
        memory = replace(memory, coverage=jnp.zeros(memory.valid.shape))
    slots = length + capacity - 1, length + allocated - 1
    hidden, cache = prefill(model.decoder, config, shard_batch(tokens), shard_batch(starts), slots[0], memory, slots[1])
    shape = (rows, strategy.groups, strategy.width // strategy.groups)
    is_first = (jnp.arange(shape[2]) == 0)[None, None]
    continuations = jnp.zeros((*shape, capacity), jnp.int32)
    empty = jnp.full(shape, -jnp.inf)
    state = BeamState(  # one empty continuation in each group
        cache=repeat_rows(separate_cache(config, cache), strategy.width),
        tokens=continuations,
        logprobs=jnp.broadcast_to(jnp.where(is_first, 0, -jnp.inf), shape),
        finished=Finished(continuations, empty, empty, jnp.zeros(shape, jnp.int32)),
        done=jnp.zeros(rows, bool),
        broken=jnp.zeros(rows, bool),
        length=jnp.int32(0),
    )
    logits = replicate(next_logits(model, config, hidden[:, -1:]))
    logits = jnp.broadcast_to(logits, (rows, strategy.width, logits.shape[-1]))
    return _advance(config, allocated, model, _select(strategy, state, logits, limits), strategy, limits)


@partial(jax.jit, static_argnums=(0, 1))
def resume(
    config: Config,
    allocated: int,
    model: CausalLM,
    state: BeamState,
    strategy: Beam,
    limits: Limits,
) -> tuple[BeamState, Finished]:
    """A search goes on until it is over or has added `allocated` tokens; returns what `search` does."""
    capacity = state.tokens.shape[-1]
    state = replace(state, cache=allocate_slots(config, state.cache, state.cache.slots - capacity + allocated))
    return _advance(config, allocated, model, state, strategy, limits)


def _advance(
    config: Config, allocated: int, model: CausalLM, state: BeamState, strategy: Beam, limits: Limits
) -> tuple[BeamState, Finished]:
    """The search after all steps for which slots are allocated, and what has finished by then."""
    rows, limit = len(state.done), jnp.minimum(limits.max_new_tokens, allocated)
    model = separate_layers(model, config)

    def step(state: BeamState) -> BeamState:
        last = jax.lax.dynamic_index_in_dim(state.tokens, state.length - 1, axis=3, keepdims=False).reshape(-1, 1)
        hidden, cache = extend(model.decoder, config, shard_like(last, state.cache.starts), state.cache)
        logits = replicate(next_logits(model, config, hidden)).reshape(rows, strategy.width, -1)
        return _select(strategy, replace(state, cache=cache), logits, limits)

    state = jax.lax.while_loop(lambda state: _goes_on(state.done, state.length, limit), step, state)
    shape = state.logprobs.shape
    logprobs = jnp.where(state.done[:, None, None], -jnp.inf, state.logprobs)
    scores = logprobs / strategy.length_divisor(limits.max_new_tokens) - _coverage_cost(strategy, state)
    unfinished = Finished(state.tokens, logprobs, scores, jnp.broadcast_to(limits.max_new_tokens, shape))
    finished = merge(state.finished, unfinished)
    finished = finished._replace(scores=jnp.where(state.broken[:, None, None], jnp.nan, finished.scores))
    return state, Finished(*(array.reshape(rows, strategy.width, *array.shape[3:]) for array in finished))


def _select(strategy: Beam, state: BeamState, logits: Array, limits: Limits) -> BeamState:
    """Extends the continuations of every group in turn by their best tokens; logits of these are [B,G*W,V]."""
    rows, groups, width = state.logprobs.shape
    vocab = logits.shape[-1]
    logits = jax.lax.optimization_barrier(logits.reshape(rows, groups, width, vocab))  # else written for each use
    values, total = logits, jax.nn.logsumexp(logits, axis=-1)
    broken = state.broken | (jnp.isnan(total) | (total == jnp.inf)).any((1, 2))
    is_stop = is_in(limits.stop, vocab)
    if strategy.constraints is not None:
        logprobs = next_logprobs(logits, total)
        texts = state.tokens.reshape(-1, state.tokens.shape[-1])
        constrained = strategy.constraints(logprobs.reshape(-1, vocab), texts, state.length, is_stop)
        values, total = constrained.reshape(logprobs.shape), jnp.zeros_like(total)
    coverage_cost = _coverage_cost(strategy, state)
    counts = jnp.zeros((rows, vocab))  # how often earlier groups chose a token at this step
    parts = []
    for group in range(groups):
        following = NextTokens(state.logprobs[:, group], values[:, group], total[:, group])
        cost = strategy.diversity * counts if group else None
        candidates = best_candidates(state.tokens[:, group], state.length, following, limits.stop, cost)
        is_ended = is_stop[candidates.last]
        ended = _finish(strategy, state, candidates, is_ended, coverage_cost[:, group])
        finished = merge(Finished(*(field[:, group] for field in state.finished)), ended)
        followed = follow(candidates, is_ended, width)
        counts += jnp.where((followed.ranks > -jnp.inf)[..., None], jax.nn.one_hot(followed.last, vocab), 0).sum(1)
        parts.append((followed, finished))
    followed, finished = jax.tree.map(lambda *fields: jnp.stack(fields, axis=1), *parts)
    parents = followed.parents + (jnp.arange(groups) * width)[None, :, None]
    cache = reorder_rows(state.cache, parents.reshape(rows, -1))
    length = state.length + 1
    done = strategy.is_done(followed.logprobs, finished.scores, length, limits.returned, limits.max_new_tokens)
    state = replace(state, cache=cache, tokens=followed.tokens, logprobs=followed.logprobs, finished=finished)
    return replace(state, broken=broken, done=state.done | done, length=length)


def _finish(
    strategy: Beam, state: BeamState, candidates: Candidates, is_ended: Array, coverage_cost: Array
) -> Finished:
    """The candidates [B,2W] that ended among the first W, for rows that are not done; the others score -inf."""
    length = state.length + 1
    in_beam = jnp.arange(is_ended.shape[1]) < state.logprobs.shape[2]
    logprobs = jnp.where(is_ended & in_beam[None] & ~state.done[:, None], candidates.logprobs, -jnp.inf)
    scores = logprobs / strategy.length_divisor(length) - take(coverage_cost, candidates.parents)
    return Finished(candidates.tokens, logprobs, scores, jnp.full(is_ended.shape, length))


def _coverage_cost(strategy: Beam, state: BeamState) -> Array:
    """What each continuation [B,G,W] pays for source tokens that got little attention, in nats."""
    memory, shape = state.cache.memory, state.logprobs.shape
    if memory is None or memory.coverage is None:
        return jnp.zeros(shape)
    coverage, valid = replicate(memory.coverage), replicate(memory.valid)
    return strategy.coverage_cost(coverage.reshape(len(valid), -1, valid.shape[1]), valid).reshape(shape)
