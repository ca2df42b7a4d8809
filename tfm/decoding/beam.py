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
from tfm.decoding.cache import Cache, extend, prefill, reorder_rows, repeat_rows, separate_cache, separate_layers
from tfm.decoding.candidates import (
    Candidates,
    Finished,
    best_candidates,
    follow,
    is_in,
    merge,
    take,
)
from tfm.decoding.checks import check_fits, check_prompts, check_strategy
from tfm.decoding.constraints import Constraints
from tfm.decoding.generate import bucket, left_padded, pad_stop
from tfm.decoding.sampling import check_min
from tfm.masks.mask import MASK_VALUE
from tfm.models.heads import CausalLM, next_logits
from tfm.sharding import mesh_of, replicate, shard_batch, shard_like


class Hypothesis(NamedTuple):
    """A continuation, a list of tokens with its stop token; its log-probability in nats, and its score: that with all
    penalties, both float []."""

    tokens: list[int]
    logprob: float
    score: float


@struct.dataclass
class Beam:
    """Options of beam search. `check` raises ValueError for a value outside its range.

    width: continuations followed per prompt
    groups: parts of the beam that avoid each other's tokens (diverse beam search: Vijayakumar et al. 2018)
    diversity: cost of a token, in nats, for each earlier group that chose it at the same step
    length_penalty: alpha; a log-probability is divided by ((offset + length) / (offset + 1)) ** alpha (Wu et al. 2016,
        eq. 14)
    coverage: beta of the same equation, the cost of source tokens that got little attention; None measures none
    early_stopping: True ends a prompt's search at `width` ended continuations; "likely" also requires that no followed
        one would score higher if it ended now; False requires that none can ever score higher
    offset: of the length penalty; 0 divides by length ** alpha, as transformers does
    constraints: applied to log-probabilities before the search
    """

    width: int = struct.field(pytree_node=False, default=4)
    groups: int = struct.field(pytree_node=False, default=1)
    diversity: float | Array = 0.0
    length_penalty: float | Array = 0.0
    coverage: float | Array | None = None
    early_stopping: bool | str = struct.field(pytree_node=False, default=False)
    offset: float | Array = 5.0
    constraints: Constraints | None = None

    def check(self):
        """Raises ValueError for values outside their range."""
        check_min("width", self.width, 1)
        check_min("groups", self.groups, 1)
        if self.width % self.groups:
            raise ValueError(f"groups={self.groups} must divide width={self.width}")
        for name, cost in (("diversity", self.diversity), ("coverage", self.coverage)):
            check_min(name, cost, 0)
            if cost is not None and not np.isfinite(cost):
                raise ValueError(f"{name}={cost} must be finite")
        if self.early_stopping not in (True, False, "likely"):
            raise ValueError(f"early_stopping={self.early_stopping} must be True, False or 'likely'")
        if self.constraints is not None:
            self.constraints.check()


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
    positions. Programs are compiled as in `generate`, and per width; for translations per length of the prompts.
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
    capacity = bucket(max_new_tokens)
    with mesh_of(model):
        finished = search(config, capacity, model, padded, strategy, pad_stop(stop), np.int32(max_new_tokens))
    finished = jax.device_get(finished)
    return [_hypotheses(finished, row, num_return_sequences) for row in range(len(prompts))]


def _hypotheses(finished: Finished, row: int, count: int) -> list[Hypothesis]:
    """The best distinct continuations of one prompt; fields of `finished` are [B,G*W,...]."""
    best: dict[tuple[int, ...], Hypothesis] = {}
    for index in np.argsort(-finished.scores[row], kind="stable"):
        score = float(finished.scores[row, index])
        if np.isfinite(score):
            tokens = finished.tokens[row, index, : finished.lengths[row, index]].tolist()
            best.setdefault(tuple(tokens), Hypothesis(tokens, float(finished.logprobs[row, index]), score))
    return list(best.values())[:count]


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


@partial(jax.jit, static_argnums=(0, 1))
def search(
    config: Config,
    capacity: int,
    model: CausalLM,
    prompts: tuple[Array, Array],
    strategy: Beam,
    stop: Array,
    max_new_tokens: Array,
) -> Finished:
    """Prompts [B,T] and their first columns [B] -> finished continuations, groups joined: [B,G*W,...]."""
    state, logits = _start(config, capacity, model, prompts, strategy)
    rows = len(state.done)
    state = _select(strategy, state, logits, stop, max_new_tokens)
    model = separate_layers(model, config)

    def step(state: BeamState) -> BeamState:
        last = jax.lax.dynamic_index_in_dim(state.tokens, state.length - 1, axis=3, keepdims=False).reshape(-1, 1)
        hidden, cache = extend(model.decoder, config, shard_like(last, state.cache.starts), state.cache)
        logits = replicate(next_logits(model, config, hidden)).reshape(rows, strategy.width, -1)
        return _select(strategy, replace(state, cache=cache), logits, stop, max_new_tokens)

    state = jax.lax.while_loop(lambda state: (state.length < max_new_tokens) & ~state.done.all(), step, state)
    shape = state.logprobs.shape
    logprobs = jnp.where(state.done[:, None, None], -jnp.inf, state.logprobs)
    scores = logprobs / _length_penalty(strategy, max_new_tokens) - _coverage_penalty(strategy, state.cache, shape)
    unfinished = Finished(state.tokens, logprobs, scores, jnp.broadcast_to(max_new_tokens, shape))
    finished = merge(state.finished, unfinished)
    finished = finished._replace(scores=jnp.where(state.broken[:, None, None], jnp.nan, finished.scores))
    return Finished(*(array.reshape(rows, strategy.width, *array.shape[3:]) for array in finished))


def _start(
    config: Config, capacity: int, model: CausalLM, prompts: tuple[Array, Array], strategy: Beam
) -> tuple[BeamState, Array]:
    """Prompts [B,T] -> a state with one empty continuation in each group, and logits [B,G*W,V] of its next token."""
    tokens, starts = prompts
    rows, length = tokens.shape
    memory = model.memory
    if memory is not None and strategy.coverage is not None:
        memory = replace(memory, coverage=jnp.zeros(memory.valid.shape))
    slots = length + capacity - 1
    hidden, cache = prefill(model.decoder, config, shard_batch(tokens), shard_batch(starts), slots, memory)
    shape = (rows, strategy.groups, strategy.width // strategy.groups)
    is_first = (jnp.arange(shape[2]) == 0)[None, None]
    continuations = jnp.zeros((*shape, capacity), jnp.int32)
    empty = jnp.full(shape, -jnp.inf)
    state = BeamState(
        cache=repeat_rows(separate_cache(config, cache), strategy.width),
        tokens=continuations,
        logprobs=jnp.broadcast_to(jnp.where(is_first, 0, -jnp.inf), shape),
        finished=Finished(continuations, empty, empty, jnp.zeros(shape, jnp.int32)),
        done=jnp.zeros(rows, bool),
        broken=jnp.zeros(rows, bool),
        length=jnp.int32(0),
    )
    logits = replicate(next_logits(model, config, hidden[:, -1:]))
    return state, jnp.broadcast_to(logits, (rows, strategy.width, logits.shape[-1]))


def _select(strategy: Beam, state: BeamState, logits: Array, stop: Array, max_new_tokens: Array) -> BeamState:
    """Extends the continuations of every group in turn by their best tokens; logits of these are [B,G*W,V]."""
    rows, groups, width = state.logprobs.shape
    vocab = logits.shape[-1]
    logits = logits.reshape(rows, groups, width, vocab)
    total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    broken = state.broken | (jnp.isnan(total) | (total == jnp.inf)).any((1, 2, 3))
    logprobs = jnp.where(logits > MASK_VALUE / 2, logits - total, -jnp.inf)
    is_stop = is_in(stop, vocab)
    if strategy.constraints is not None:
        texts = state.tokens.reshape(-1, state.tokens.shape[-1])
        constrained = strategy.constraints(logprobs.reshape(-1, vocab), texts, state.length, is_stop)
        logprobs = constrained.reshape(logprobs.shape)
    coverage_penalty = _coverage_penalty(strategy, state.cache, state.logprobs.shape)
    counts = jnp.zeros((rows, vocab))  # how often earlier groups chose a token at this step
    parts = []
    for group in range(groups):
        tokens, group_logprobs = state.tokens[:, group], state.logprobs[:, group]
        cost = strategy.diversity * counts
        candidates = best_candidates(tokens, group_logprobs, state.length, logprobs[:, group], stop, cost)
        is_ended = is_stop[candidates.last]
        ended = _finish(strategy, state, candidates, is_ended, coverage_penalty[:, group])
        finished = merge(Finished(*(field[:, group] for field in state.finished)), ended)
        followed = follow(candidates, is_ended, width)
        counts += jnp.where((followed.ranks > -jnp.inf)[..., None], jax.nn.one_hot(followed.last, vocab), 0).sum(1)
        parts.append((followed, finished))
    followed, finished = jax.tree.map(lambda *fields: jnp.stack(fields, axis=1), *parts)
    parents = followed.parents + (jnp.arange(groups) * width)[None, :, None]
    cache = reorder_rows(state.cache, parents.reshape(rows, -1))
    length = state.length + 1
    state = replace(state, cache=cache, tokens=followed.tokens, logprobs=followed.logprobs, finished=finished)
    return replace(state, broken=broken, done=_is_done(strategy, state, length, max_new_tokens), length=length)


def _finish(
    strategy: Beam, state: BeamState, candidates: Candidates, is_ended: Array, coverage_penalty: Array
) -> Finished:
    """The candidates [B,2W] that ended among the first W, for rows that are not done; the others score -inf."""
    length = state.length + 1
    in_beam = jnp.arange(is_ended.shape[1]) < state.logprobs.shape[2]
    logprobs = jnp.where(is_ended & in_beam[None] & ~state.done[:, None], candidates.logprobs, -jnp.inf)
    scores = logprobs / _length_penalty(strategy, length) - take(coverage_penalty, candidates.parents)
    return Finished(candidates.tokens, logprobs, scores, jnp.full(is_ended.shape, length))


def _is_done(strategy: Beam, state: BeamState, length: Array, max_new_tokens: Array) -> Array:
    """bool [B]: rows where no followed continuation can still beat a finished one; see `Beam.early_stopping`."""
    worst = state.finished.scores.min((1, 2))
    if strategy.early_stopping is True:
        return state.done | (worst > -jnp.inf)
    if strategy.early_stopping == "likely":
        best_length = length
    else:
        best_length = jnp.where(jnp.asarray(strategy.length_penalty) > 0, max_new_tokens, length + 1)
    return state.done | (state.logprobs.max((1, 2)) / _length_penalty(strategy, best_length) <= worst)


def _length_penalty(strategy: Beam, length: Array) -> Array:
    """((offset + length) / (offset + 1)) ** alpha, float32."""
    offset = jnp.asarray(strategy.offset, jnp.float32)
    ratio = (offset + jnp.asarray(length, jnp.float32)) / (offset + 1)
    return ratio ** jnp.asarray(strategy.length_penalty, jnp.float32)


def _coverage_penalty(strategy: Beam, cache: Cache, shape: tuple[int, ...]) -> Array:
    """What each continuation, of shape [B,G,W], pays for source tokens with a total attention below 1, in nats."""
    if cache.memory is None or cache.memory.coverage is None:
        return jnp.zeros(shape)
    coverage, valid = replicate(cache.memory.coverage), replicate(cache.memory.valid)
    attention = jnp.where(valid[:, None, None], jnp.clip(coverage.reshape(*shape, -1), 1e-9, 1), 1)
    return -jnp.asarray(strategy.coverage, jnp.float32) * jnp.log(attention).sum(-1)
