"""Text from a decoder: one pass over the prompts, then one compiled loop that adds a token to every row at a time."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.decoding.cache import Cache, extend, prefill, separate_cache, separate_layers
from tfm.decoding.checks import check_fits, check_prompts, check_strategy, limits_of
from tfm.decoding.sampling import Greedy, Sample, choose_token, is_in
from tfm.models.heads import CausalLM, next_logits
from tfm.sharding import mesh_of, replicate, shard_batch, shard_like

# Stop tokens are padded to this count, so that their number does not recompile a program.
_STOP_TOKENS = 8


class Generated(NamedTuple):
    """New tokens of each prompt, a stop token included, B lists; and the log-probability of each token, in nats."""

    tokens: list[list[int]]
    logprobs: list[list[float]]


def generate(
    model: CausalLM,
    config: Config,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int | Sequence[int],
    strategy: Greedy | Sample | None = None,
    stop: Sequence[int] = (),
    sliding_context: bool = False,
) -> Generated:
    """Token ids of prompts -> up to `max_new_tokens` tokens after each; a row ends with its first token of `stop`.

    max_new_tokens: for all prompts, or of each

    strategy defaults to `Greedy()`. Prompts may differ in length; rows do not influence each other. Raises ValueError
    if a text can exceed the learned positions; with `sliding_context`, the second half of a full text becomes the new
    context instead. Programs are compiled per number of prompts, `bucket(longest prompt)` and `bucket(max_new_tokens)`.
    """
    generation = Generation(model, config, prompts, max_new_tokens, strategy, stop, sliding_context)
    generation.advance(generation.max_new_tokens)
    return Generated(generation.tokens, generation.logprobs)


class Generation:
    """`generate` in steps, to show a text while it is written:

        text = tfm.Generation(model, config, [prompt], max_new_tokens=200)
        while not text.done:
            text.advance(8)
            print(text.tokens[0])

    Raises ValueError for prompts, stop tokens and strategies that do not fit the model.
    """

    def __init__(
        self,
        model: CausalLM,
        config: Config,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int | Sequence[int],
        strategy: Greedy | Sample | None = None,
        stop: Sequence[int] = (),
        sliding_context: bool = False,
    ):
        self.model = model
        self.config = config
        self.limits = limits_of(prompts, max_new_tokens)
        self.max_new_tokens = max(self.limits, default=1)
        check_prompts(config, prompts, self.max_new_tokens, stop)
        self.prompts = [list(map(int, prompt)) for prompt in prompts]
        self.strategy = strategy or Greedy()
        check_strategy(self.strategy, (Greedy, Sample))
        if sliding_context and self.strategy.constraints is not None:
            raise ValueError("constraints need the whole text, and sliding_context cuts it; leave out one of them")
        if not sliding_context:
            check_fits(config, self.prompts, self.limits, "shorten the prompt, or set sliding_context=True")
        self.stop = pad_stop(stop)
        self.tokens: list[list[int]] = [[] for _ in self.prompts]
        self.logprobs: list[list[float]] = [[] for _ in self.prompts]
        self.stopped = np.zeros(len(self.prompts), bool)
        self.num_generated = 0  # tokens that every unfinished row has
        self._limit = config.max_length if sliding_context else None
        # A sliding text uses the shapes of a full one throughout: one program serves all its contexts.
        longest = max(map(len, self.prompts))
        self._min_slots = self._limit if self._limit is not None and longest + self.max_new_tokens > self._limit else 0
        self._context_starts = [0] * len(self.prompts)
        self._state: DecodeState | None = None
        self._capacity = 0  # tokens that can follow the context of this state
        self._num_read = 0  # columns of this state that the rows already have

    @property
    def done(self) -> bool:
        """Whether every row has stopped or has all its tokens."""
        return self.num_generated == self.max_new_tokens or bool(self.stopped.all())

    def advance(self, num_tokens: int):
        """Adds up to `num_tokens` tokens to each row."""
        target = min(self.num_generated + num_tokens, self.max_new_tokens)
        with mesh_of(self.model):
            while self.num_generated < target and not self.done:
                if self._num_read == self._capacity:
                    capacity, prompts = self._next_contexts()
                    state = start(self.config, capacity, self.model, prompts, self.strategy, self.stop)
                else:
                    last = np.int32(min(self._num_read + target - self.num_generated, self._capacity))
                    state = advance(self.config, self.model, self._state, self.strategy, self.stop, last)
                self._read(state)

    def _next_contexts(self) -> tuple[int, "PromptBatch"]:
        """How many tokens a new state has room for, and the context of every row that it reads."""
        contexts = [self._context(row) for row in range(len(self.prompts))]
        self._num_read = 0
        self._capacity = self.max_new_tokens - self.num_generated
        if self._limit is not None:
            longest = max(len(context) for context, stopped in zip(contexts, self.stopped, strict=True) if not stopped)
            self._capacity = min(self._capacity, max(1, self._limit - longest))
        capacity = bucket(max(self._capacity, self._min_slots))
        tokens, starts = left_padded(contexts, self._min_slots)
        return capacity, PromptBatch(tokens, starts, self.stopped, np.int32(self.num_generated))

    def _context(self, row: int) -> list[int]:
        """The tokens of a row that the model reads; those of a full text are cut to its second half from now on."""
        text = self.prompts[row] + self.tokens[row]
        if self._limit is not None and len(text) - self._context_starts[row] >= self._limit:
            self._context_starts[row] = len(text) - max(1, self._limit // 2)
        return text[self._context_starts[row] :]

    def _read(self, state: "DecodeState"):
        """Appends the new columns of a state to the rows that have not stopped."""
        filled = int(state.num_tokens)
        tokens = np.asarray(state.tokens)[:, self._num_read : filled]
        logprobs = np.asarray(state.logprobs)[:, self._num_read : filled]
        for row in np.flatnonzero(~self.stopped):
            stops = np.flatnonzero(np.isin(tokens[row], self.stop))
            count = stops[0] + 1 if len(stops) else filled - self._num_read
            rest = self.limits[row] - len(self.tokens[row])
            self.tokens[row] += tokens[row, : min(count, rest)].tolist()
            self.logprobs[row] += logprobs[row, : min(count, rest)].tolist()
            self.stopped[row] = len(stops) > 0 or count >= rest
        self.num_generated += filled - self._num_read
        self._num_read = filled
        self._state = state


class PromptBatch(NamedTuple):
    """Prompts as arrays of numpy or jax.

    tokens: int32 [B,T], left-padded
    starts: int32 [B], the first column of every prompt
    stopped: bool [B], rows whose tokens are not read any more
    num_earlier: scalar, generated tokens that are part of the prompts
    """

    tokens: Any
    starts: Any
    stopped: Any
    num_earlier: Any


@struct.dataclass
class DecodeState:
    """Texts in progress.

    cache: decode states of every token but the last
    tokens: int32 [B,N], of which the first `num_tokens` columns are filled
    logprobs: float32 [B,N], likewise
    seen: bool [B,V], the tokens of each text, prompt included; None without a repetition penalty
    stopped: bool [B]
    num_tokens: scalar
    num_earlier: scalar, as in `PromptBatch`
    """

    cache: Cache
    tokens: Array
    logprobs: Array
    seen: Array | None
    stopped: Array
    num_tokens: Array
    num_earlier: Array


@partial(jax.jit, static_argnums=(0, 1))
def start(
    config: Config, capacity: int, model: CausalLM, prompts: PromptBatch, strategy: Greedy | Sample, stop: Array
) -> DecodeState:
    """Reads prompts [B,T] and chooses the token after each; the state holds up to `capacity` new tokens."""
    rows, length = prompts.tokens.shape
    tokens = shard_batch(prompts.tokens)
    slots = length + capacity - 1
    hidden, cache = prefill(model.decoder, config, tokens, shard_batch(prompts.starts), slots, model.memory)
    seen = None
    if strategy.repetition_penalty is not None:
        is_token = jnp.arange(length)[None] >= prompts.starts[:, None]
        seen = jnp.zeros((rows, config.padded_vocab), bool)
        seen = seen.at[jnp.arange(rows)[:, None], prompts.tokens].max(is_token)
    state = DecodeState(
        cache=separate_cache(config, cache),
        tokens=jnp.zeros((rows, capacity), jnp.int32),
        logprobs=jnp.zeros((rows, capacity), jnp.float32),
        seen=seen,
        stopped=prompts.stopped,
        num_tokens=jnp.int32(0),
        num_earlier=prompts.num_earlier,
    )
    return _append_token(config, model, state, hidden[:, -1:], strategy, stop)


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def advance(
    config: Config, model: CausalLM, state: DecodeState, strategy: Greedy | Sample, stop: Array, last: Array
) -> DecodeState:
    """Chooses tokens until the state has `last` of them, or all rows have stopped."""
    model = separate_layers(model, config)

    def step(state: DecodeState) -> DecodeState:
        token = jax.lax.dynamic_slice_in_dim(state.tokens, state.num_tokens - 1, 1, axis=1)
        hidden, cache = extend(model.decoder, config, shard_like(token, state.cache.starts), state.cache)
        return _append_token(config, model, replace(state, cache=cache), hidden, strategy, stop)

    return jax.lax.while_loop(lambda state: (state.num_tokens < last) & ~state.stopped.all(), step, state)


def _append_token(
    config: Config, model: CausalLM, state: DecodeState, hidden: Array, strategy: Greedy | Sample, stop: Array
) -> DecodeState:
    """The state with the token that follows hidden states [B,1,D]."""
    logits = replicate(next_logits(model, config, hidden)[:, 0])
    step = state.num_earlier + state.num_tokens
    scores = logits
    if strategy.constraints is not None:
        scores = strategy.constraints(logits, state.tokens, step, is_in(stop, logits.shape[-1]))
    token = choose_token(strategy, scores, state.seen, step)[:, None]
    logprob = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), token, axis=1)
    return replace(
        state,
        tokens=jax.lax.dynamic_update_slice_in_dim(state.tokens, token, state.num_tokens, axis=1),
        logprobs=jax.lax.dynamic_update_slice_in_dim(state.logprobs, logprob, state.num_tokens, axis=1),
        seen=None if state.seen is None else state.seen | (jnp.arange(logits.shape[-1])[None] == token),
        stopped=state.stopped | (token == stop[None]).any(1),
        num_tokens=state.num_tokens + 1,
    )


def pad_stop(stop: Sequence[int]) -> np.ndarray:
    """Stop tokens -> int32 [8], or [16], [32], ..., padded with -1."""
    count = _STOP_TOKENS if len(stop) <= _STOP_TOKENS else bucket(len(stop))
    return np.array([*stop, *[-1] * (count - len(stop))], np.int32)


def bucket(length: int) -> int:
    """The next power of two, at least 16; lengths in one bucket share compiled programs."""
    return max(16, 1 << (length - 1).bit_length())


def left_padded(
    rows: Sequence[Sequence[int]], min_length: int = 0, exact: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Lists of tokens -> int32 [B,T], every list at the end of its row, and its first column [B].

    T is the bucket of the longest list, or of `min_length` if that is longer; where it is exact, the longest list.
    """
    longest = max(min_length, *map(len, rows))
    length = longest if exact else bucket(longest)
    starts = np.array([length - len(row) for row in rows], np.int32)
    return np.array([[0] * start + list(row) for start, row in zip(starts, rows, strict=True)], np.int32), starts
