"""Speculative decoding (Leviathan et al. 2023): a draft proposes several tokens, and the model reads them in one pass.

    text      a b c            the draft proposes  d e f
    model     reads c d e f    and says what it would write after each:  d e x .
    result    d and e are right, f is not: the text is  a b c d e x  after one pass

Texts are those of `generate`: with `Greedy` the same tokens, with `Sample` tokens of the same distribution.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.catalogue.decoding.drafts import Draft, DraftModel, NGram, Proposal, from_model, from_ngram, rewound
from tfm.config.model import Config
from tfm.decoding.cache import Cache, extend, prefill, separate_cache, separate_layers
from tfm.decoding.checks import check_fits, check_prompts, check_strategy, limits_of
from tfm.decoding.generate import bucket, left_padded, pad_stop
from tfm.decoding.sampling import Greedy, Sample, distribution
from tfm.mixers.softmax import KeysValues
from tfm.models.heads import CausalLM, next_logits
from tfm.sharding import first_entries, mesh_of, on_mesh, replicate

# Tokens that a draft proposes at a time.
AHEAD = 4


class Writing(NamedTuple):
    """A model that writes: its configuration, the tokens that a draft proposes at a time, and places for new tokens."""

    config: Config
    ahead: int
    capacity: int


@struct.dataclass
class SpeculativeState:
    """One text in progress.

    cache, draft_cache: of every token but the last; None: the draft is no model
    text: int32 [S], a prompt, padded on the left, and new tokens; the tokens are those from `first` to `length`
    logprobs: float32 [S], those of the new tokens by the model
    seen: bool [1,V], the tokens of the text; None without a repetition penalty
    stopped: the text has ended
    passes: of the model over proposals
    """

    cache: Cache
    draft_cache: Cache | None
    text: Array
    logprobs: Array
    first: Array
    length: Array
    seen: Array | None
    stopped: Array
    passes: Array


class Speculation:
    """As `Generation`, with a draft; texts are written one after the other.

        text = tfm.Speculation(model, config, [prompt], 200, tfm.NGram())
        text.advance(200)
        print(text.tokens[0], text.tokens_per_pass)

    Raises ValueError for what `Generation` refuses, for constraints, for a model whose layers cannot forget tokens, and
    for a draft model with another vocabulary. A text must leave `ahead` positions of the models free.
    """

    def __init__(
        self,
        model: CausalLM,
        config: Config,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int | Sequence[int],
        draft: Draft,
        strategy: Greedy | Sample | None = None,
        stop: Sequence[int] = (),
    ):
        limits = limits_of(prompts, max_new_tokens)
        check_prompts(config, prompts, max(limits, default=1), stop)
        self.strategy = strategy or Greedy()
        check_strategy(self.strategy, (Greedy, Sample))
        if self.strategy.constraints is not None:
            raise ValueError("a draft proposes tokens without constraints; leave out the constraints, or the draft")
        for read in (config, draft.config) if isinstance(draft, DraftModel) else (config,):
            check_fits(
                read,
                prompts,
                [limit + AHEAD for limit in limits],
                f"or leave out the draft, which looks {AHEAD} tokens ahead",
            )
        if isinstance(draft, DraftModel) and draft.config.vocab != config.vocab:
            raise ValueError(
                f"the draft has {draft.config.vocab} tokens, and the model {config.vocab}; they must share a tokenizer"
            )
        self.model, self.draft, self.limits = model, draft, limits
        self.prompts = [[int(token) for token in prompt] for prompt in prompts]
        self.writing = Writing(config, AHEAD, bucket(max(limits)))
        self.stop = pad_stop(stop)
        self.tokens: list[list[int]] = [[] for _ in self.prompts]
        self.logprobs: list[list[float]] = [[] for _ in self.prompts]
        self._states: list[SpeculativeState | None] = [None] * len(self.prompts)

    @property
    def done(self) -> bool:
        """Whether every text has stopped or has all its tokens."""
        return all(map(self._is_done, range(len(self.prompts))))

    @property
    def tokens_per_pass(self) -> float:
        """New tokens for each pass of the model over proposals."""
        passes = sum(int(state.passes) for state in self._states if state is not None)
        return sum(len(tokens) - 1 for tokens in self.tokens if tokens) / max(1, passes)

    def advance(self, num_tokens: int):
        """Adds `num_tokens` tokens, or a few more, to each text that has not ended."""
        with mesh_of(self.model):
            for row in range(len(self.prompts)):
                if not self._is_done(row):
                    self._advance(row, num_tokens)

    def _is_done(self, row: int) -> bool:
        state = self._states[row]
        return state is not None and (len(self.tokens[row]) == self.limits[row] or bool(state.stopped))

    def _advance(self, row: int, num_tokens: int):
        tokens, starts = left_padded([self.prompts[row]])
        width = tokens.shape[1]
        strategy = jax.tree.map(lambda leaf: leaf[row] if np.ndim(leaf) else leaf, self.strategy)
        state = self._states[row]
        if state is None:
            state = start(self.writing, self.model, self.draft, (tokens, starts), strategy, self.stop)
        last = np.int32(width + min(len(self.tokens[row]) + num_tokens, self.limits[row]))
        state = self._states[row] = advance(self.writing, self.model, self.draft, state, strategy, self.stop, last)
        end = min(int(state.length), width + self.limits[row])
        self.tokens[row] = np.asarray(state.text)[width:end].tolist()
        self.logprobs[row] = np.asarray(state.logprobs)[width:end].tolist()


@partial(jax.jit, static_argnums=0)
def start(
    writing: Writing,
    model: CausalLM,
    draft: Draft,
    prompt: tuple[Array, Array],
    strategy: Greedy | Sample,
    stop: Array,
) -> SpeculativeState:
    """Reads a prompt [1,T], padded on the left up to starts [1], and chooses the token after it."""
    tokens, starts = map(on_mesh, map(jnp.asarray, prompt))
    config, width = writing.config, tokens.shape[1]
    slots = width + writing.capacity + writing.ahead
    hidden, cache = prefill(model.decoder, config, tokens, starts, slots, model.memory)
    _check_rewinds(cache)
    draft_cache = None
    if isinstance(draft, DraftModel):
        draft_cache = prefill(draft.model.decoder, draft.config, tokens, starts, slots)[1]
        _check_rewinds(draft_cache)
        draft_cache = separate_cache(draft.config, draft_cache)
    seen = None
    if strategy.repetition_penalty is not None:
        is_token = jnp.arange(width) >= starts[0]
        seen = jnp.zeros((1, config.vocab), bool).at[0, tokens[0]].max(is_token)
    state = SpeculativeState(
        cache=separate_cache(config, cache),
        draft_cache=draft_cache,
        text=jnp.pad(tokens[0], (0, slots + 1 - width)),
        logprobs=jnp.zeros(slots + 1),
        first=starts[0],
        length=jnp.int32(width),
        seen=seen,
        stopped=jnp.bool_(False),
        passes=jnp.int32(0),
    )
    nothing = Proposal(jnp.zeros(0, jnp.int32), jnp.zeros((0, config.vocab)), draft_cache)
    return _append(writing, model, state, hidden[:, -1:], nothing, strategy, stop)


def _check_rewinds(cache: Cache) -> None:
    """Raises ValueError for layers that keep sums over all tokens, or the last few tokens alone.

    Slots of keys and values behind the length of the cache are not read. Where a pattern ends, new tokens replace old
    ones.
    """
    states = jax.tree.leaves(cache.states, is_leaf=lambda state: isinstance(state, KeysValues))
    if not all(isinstance(state, KeysValues) and state.reach is None for state in states):
        raise ValueError(
            "a draft needs layers that can forget the tokens that were wrong, and these keep sums or the last tokens "
            "alone; leave out the draft, or take mixer=softmax with pattern=full"
        )


@partial(jax.jit, static_argnums=0, donate_argnums=3)
def advance(
    writing: Writing,
    model: CausalLM,
    draft: Draft,
    state: SpeculativeState,
    strategy: Greedy | Sample,
    stop: Array,
    last: Array,
) -> SpeculativeState:
    """Adds tokens until the text is `last` long or longer, or has stopped."""
    config = writing.config
    model = separate_layers(model, config)
    if isinstance(draft, DraftModel):
        draft = replace(draft, model=separate_layers(draft.model, draft.config))

    def step(state: SpeculativeState) -> SpeculativeState:
        token = state.text[state.length - 1]
        proposal = _propose(writing, draft, state, token, strategy)
        block = jnp.concatenate([token[None], proposal.tokens])[None]
        hidden, cache = extend(model.decoder, config, block, state.cache)
        state = replace(state, cache=cache, passes=state.passes + 1)
        return _append(writing, model, state, hidden, proposal, strategy, stop)

    return jax.lax.while_loop(lambda state: (state.length < last) & ~state.stopped, step, state)


def _propose(
    writing: Writing, draft: Draft, state: SpeculativeState, token: Array, strategy: Greedy | Sample
) -> Proposal:
    """What the draft proposes after the last token."""
    if isinstance(draft, DraftModel) and state.draft_cache is not None:
        key = _key(strategy, state, 0)
        return from_model(draft, state.draft_cache, token, strategy, state.seen, key, writing.ahead)
    assert isinstance(draft, NGram)
    return from_ngram(draft, state.text, state.first, state.length, (writing.ahead, writing.config.vocab))


def _append(
    writing: Writing,
    model: CausalLM,
    state: SpeculativeState,
    hidden: Array,
    proposal: Proposal,
    strategy: Greedy | Sample,
    stop: Array,
) -> SpeculativeState:
    """The state with the proposals that are accepted and the token after them, chosen by hidden states [1,K+1,D].

    A proposal of probability q is accepted with probability min(1, p / q), where p is that of the model; the first that
    is not gives way to a draw from max(0, p - q) (Leviathan et al. 2023, algorithm 1).
    """
    ahead, vocab = proposal.probabilities.shape
    logits = replicate(first_entries(next_logits(model, writing.config, hidden)[0], vocab))
    p = distribution(strategy, logits, _seen_by_place(state.seen, proposal.tokens))
    q = jnp.concatenate([proposal.probabilities, jnp.zeros((1, vocab))])
    drawn = jax.random.uniform(_key(strategy, state, 1), (ahead,))
    places = jnp.arange(ahead)
    p_of, q_of = (x[places, proposal.tokens] for x in (p, q))
    count = jnp.cumprod(((q_of > 0) & (drawn * q_of < p_of)).astype(jnp.int32)).sum()
    rest = jnp.maximum(p[count] - q[count], 0)
    rest = jnp.where(rest.sum() > 0, rest, p[count])  # equal but for rounding
    token = jax.random.categorical(_key(strategy, state, 2), jnp.log(rest)).astype(jnp.int32)
    written = jnp.where(jnp.arange(ahead + 1) < count, jnp.pad(proposal.tokens, (0, 1)), token)
    logprobs = jax.nn.log_softmax(logits, axis=-1)[jnp.arange(ahead + 1), written]
    is_stop = (written[:, None] == stop[None]).any(1) & (jnp.arange(ahead + 1) <= count)
    added = jnp.where(is_stop.any(), is_stop.argmax(), count) + 1
    seen = _seen_by_place(state.seen, jnp.where(jnp.arange(ahead + 1) < added, written, -1))
    length = state.length + added
    return replace(
        state,
        cache=rewound(state.cache, length - 1),
        draft_cache=None if proposal.cache is None else rewound(proposal.cache, length - 1),
        text=jax.lax.dynamic_update_slice(state.text, written, (state.length,)),
        logprobs=jax.lax.dynamic_update_slice(state.logprobs, logprobs, (state.length,)),
        length=length,
        seen=None if seen is None else seen[-1:],
        stopped=is_stop.any(),
    )


def _seen_by_place(seen: Array | None, tokens: Array) -> Array | None:
    """seen [1,V] and tokens [K] after it -> bool [K+1,V]: the tokens before each place; -1 is no token."""
    if seen is None:
        return None
    later = jnp.cumsum(jax.nn.one_hot(tokens, seen.shape[1], dtype=jnp.int32), axis=0) > 0
    return jnp.concatenate([seen, seen | later])


def _key(strategy: Greedy | Sample, state: SpeculativeState, index: int) -> Array:
    """The key of a draw: by the seed and the tokens of the text."""
    seed = strategy.seed if isinstance(strategy, Sample) else 0
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), state.length - state.first), index)
