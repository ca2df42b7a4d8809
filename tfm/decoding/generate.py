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
from tfm.decoding.cache import Cache, extend, prefill
from tfm.decoding.sampling import Greedy, Sample, choose
from tfm.models.heads import CausalLM, next_logits
from tfm.sharding import mesh_of, replicate, shard_batch, shard_like

# Room for stop tokens, so that their number is no reason to compile again.
_STOPS = 8


class Generated(NamedTuple):
    """What was added to each prompt: tokens, the last one perhaps a stop token, and the model's own log-probability of each, in nats."""

    tokens: list[list[int]]
    logprobs: list[list[float]]


def generate(
    model: CausalLM,
    config: Config,
    prompts: Sequence[Sequence[int]],
    new: int,
    how: Greedy | Sample | None = None,
    stop: Sequence[int] = (),
    slide: bool = False,
) -> Generated:
    """At most `new` tokens after each prompt of token ids, greedily chosen unless told; the first token of `stop` ends a row.

    Prompts may differ in length, and do not disturb each other. Where learned positions do not suffice, it raises ValueError at once;
    with `slide`, a text that is full goes on from its second half. Programs are compiled for a number of prompts, for
    `bucket(longest prompt)` and `bucket(new)`, and serve all that fits in these.
    """
    text = Generation(model, config, prompts, new, how, stop, slide)
    text.advance(new)
    return Generated(text.tokens, text.logprobs)


class Generation:
    """`generate` in pieces, for those who want to see the text as it comes:

    text = tfm.Generation(model, config, [prompt], new=200)
    while not text.done:
        text.advance(8)
        print(text.tokens[0])
    """

    def __init__(
        self,
        model: CausalLM,
        config: Config,
        prompts: Sequence[Sequence[int]],
        new: int,
        how: Greedy | Sample | None = None,
        stop: Sequence[int] = (),
        slide: bool = False,
    ):
        self.model, self.config, self.new, self.how = model, config, new, how or Greedy()
        self.prompts = [[int(token) for token in prompt] for prompt in prompts]
        check(config, self.prompts, new, self.how, (Greedy, Sample), slide)
        self.stop = stop_tokens(stop)
        self.tokens: list[list[int]] = [[] for _ in self.prompts]
        self.logprobs: list[list[float]] = [[] for _ in self.prompts]
        self.stopped = np.zeros(len(self.prompts), bool)
        self.made = 0  # tokens that every row has which has not stopped
        self._progress: Progress | None = None
        self._from = [0] * len(self.prompts)  # where what is read of each text begins
        slides = config.position == "learned" and max(map(len, self.prompts)) + new > config.length
        self._least = (
            config.length if slides else 0
        )  # room for every text and for all that follows it: one program serves all of them
        self._taken = self._room = (
            0  # of the tokens of this progress: how many are in the rows, and how many there can be
        )

    @property
    def done(self) -> bool:
        """Whether every row has stopped or has all its tokens."""
        return self.made == self.new or bool(self.stopped.all())

    def advance(self, number: int):
        """Adds at most `number` tokens to each row."""
        until = min(self.made + number, self.new)
        with mesh_of(self.model):
            while self.made < until and not self.done:
                if self._taken == self._room:
                    self._take(self._begin())
                else:
                    last = np.int32(min(self._taken + until - self.made, self._room))
                    self._take(advance(self.config, self.model, self._progress, self.how, self.stop, last))

    def _begin(self) -> "Progress":
        """Reads the texts so far and chooses a token after each."""
        texts = [self._context(row) for row in range(len(self.prompts))]
        longest = max(len(text) for text, stopped in zip(texts, self.stopped, strict=True) if not stopped)
        self._taken, self._room = 0, self.new - self.made
        if self.config.position == "learned":
            self._room = min(self._room, max(1, self.config.length - longest))
        given = *left_padded(texts, self._least), self.stopped, np.int32(self.made)
        return start(self.config, bucket(max(self._room, self._least)), self.model, given, self.how, self.stop)

    def _context(self, row: int) -> list[int]:
        """What is read of a text: where that fills all positions, from now on its second half."""
        text = self.prompts[row] + self.tokens[row]
        if self.config.position == "learned" and len(text) - self._from[row] >= self.config.length:
            self._from[row] = len(text) - max(1, self.config.length // 2)
        return text[self._from[row] :]

    def _take(self, progress: "Progress"):
        """Gives the rows what was chosen since the last time."""
        number = int(progress.number)
        tokens, logprobs = (np.asarray(each)[:, self._taken : number] for each in (progress.tokens, progress.logprobs))
        for row in np.flatnonzero(~self.stopped):
            ends = np.flatnonzero(np.isin(tokens[row], self.stop))
            count = ends[0] + 1 if len(ends) else number - self._taken
            self.tokens[row] += tokens[row, :count].tolist()
            self.logprobs[row] += logprobs[row, :count].tolist()
            self.stopped[row] = len(ends) > 0
        self.made, self._taken, self._progress = self.made + number - self._taken, number, progress


@struct.dataclass
class Progress:
    """Texts under way.

    cache: keys and values of every token but the last
    tokens: [B,N] int32, what was chosen, and logprobs [B,N]; the first `number` columns of them are filled
    seen: [B,V], the tokens that a text has; None where nobody asks
    stopped: [B]
    number: scalar, tokens chosen here, after `before` others that have become part of the prompt
    """

    cache: Cache
    tokens: Array
    logprobs: Array
    seen: Array | None
    stopped: Array
    number: Array
    before: Array


@partial(jax.jit, static_argnums=(0, 1))
def start(
    config: Config, room: int, model: CausalLM, given: tuple[Array, ...], how: Greedy | Sample, stop: Array
) -> Progress:
    """Reads prompts [B,T], padded up to starts [B], and chooses a first token; `room` is for so many tokens."""
    prompts, starts, stopped, before = given
    rows, length = prompts.shape
    hidden, cache = prefill(
        model.decoder, config, shard_batch(prompts), shard_batch(starts), length + room - 1, model.memory
    )
    seen = None
    if how.repetition is not None:
        real = jnp.arange(length)[None] >= starts[:, None]
        seen = jnp.zeros((rows, config.padded_vocab), bool).at[jnp.arange(rows)[:, None], prompts].max(real)
    empty = jnp.zeros((rows, room), jnp.int32), jnp.zeros((rows, room), jnp.float32)
    return _choose(
        config, model, Progress(cache, *empty, seen, stopped, jnp.int32(0), before), hidden[:, -1:], how, stop
    )


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def advance(
    config: Config, model: CausalLM, progress: Progress, how: Greedy | Sample, stop: Array, last: Array
) -> Progress:
    """Chooses tokens until there are `last`, or all rows have stopped."""

    def step(progress: Progress) -> Progress:
        token = jax.lax.dynamic_slice_in_dim(progress.tokens, progress.number - 1, 1, axis=1)
        hidden, cache = extend(model.decoder, config, shard_like(token, progress.cache.starts), progress.cache)
        return _choose(config, model, replace(progress, cache=cache), hidden, how, stop)

    return jax.lax.while_loop(lambda progress: (progress.number < last) & ~progress.stopped.all(), step, progress)


def _choose(
    config: Config, model: CausalLM, progress: Progress, hidden: Array, how: Greedy | Sample, stop: Array
) -> Progress:
    """The progress with one more token, chosen by the states [B,1,D] of the last one."""
    logits = replicate(next_logits(model, config, hidden)[:, 0])
    number, scores = progress.before + progress.number, logits
    if how.rules is not None:
        scores = how.rules(
            logits, progress.tokens, number, (jnp.arange(logits.shape[-1])[:, None] == stop[None]).any(1)
        )
    token = choose(how, scores, progress.seen, number)[:, None]
    logprob = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), token, axis=1)
    write = lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, progress.number, axis=1)
    seen = None if progress.seen is None else progress.seen | (jnp.arange(logits.shape[-1])[None] == token)
    return replace(
        progress,
        tokens=write(progress.tokens, token),
        logprobs=write(progress.logprobs, logprob),
        seen=seen,
        stopped=progress.stopped | (token == stop[None]).any(1),
        number=progress.number + 1,
    )


def check(
    config: Config, prompts: Sequence[Sequence[int]], new: int, how: Any, kinds: tuple[type, ...], slide: bool = False
):
    """Raises ValueError for what cannot be generated."""
    if not prompts or not all(len(prompt) for prompt in prompts):
        raise ValueError("prompts must hold at least one prompt, and each at least one token")
    outside = [token for prompt in prompts for token in prompt if not 0 <= token < config.vocab]
    if outside:
        raise ValueError(f"prompts have token {outside[0]}, which is not in the vocabulary of {config.vocab}")
    if new < 1:
        raise ValueError(f"new={new} must be at least 1")
    if type(how) not in kinds:
        raise ValueError(f"how={how} must be {' or '.join(kind.__name__ for kind in kinds)}")
    how.check()
    if slide and how.rules is not None:
        raise ValueError(
            "rules know only the tokens that are written at once, so a text with rules cannot slide; leave out one of both"
        )
    longest = max(map(len, prompts))
    if config.position == "learned" and longest + new > config.length and not slide:
        raise ValueError(
            f"a prompt of {longest} tokens and new={new} do not fit into the {config.length} positions of the model; "
            "ask for fewer, shorten the prompt, or let it slide"
        )


def stop_tokens(stop: Sequence[int]) -> np.ndarray:
    """Stop tokens, and -1 where there are fewer than there is room for. Raises ValueError where there are more."""
    if len(stop) > _STOPS:
        raise ValueError(f"stop has {len(stop)} tokens, and there is room for {_STOPS}; leave some out")
    return np.array([*stop, *[-1] * (_STOPS - len(stop))], np.int32)


def bucket(length: int) -> int:
    """The next power of two, at least 16: lengths within a bucket share their compiled programs."""
    return max(16, 1 << (length - 1).bit_length())


def left_padded(rows: Sequence[Sequence[int]], least: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Lists of tokens -> int32 [B,T], T the bucket of the longest or of `least`, with each list at the end of its row, and where it
    starts [B]."""
    length = bucket(max(least, *map(len, rows)))
    starts = np.array([length - len(row) for row in rows], np.int32)
    return np.array([[0] * start + list(row) for start, row in zip(starts, rows, strict=True)], np.int32), starts
