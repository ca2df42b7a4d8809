"""Hard constraints on generated text: tokens that must come and tokens that must not, whatever their probability."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.sharding import on_mesh


@struct.dataclass
class Constraints:
    """Which tokens may follow a prompt. Lengths count generated tokens only, and are numbers or [B]; None turns a
    constraint off. They apply in the order of transformers. `check` raises ValueError for values outside their range.

    forced_bos: the first token
    forced_eos: the last token of a text that reaches `max_length`; or bool [V], of several the most probable one
    max_length: length at which `forced_eos` comes
    min_length: length below which no stop token comes
    bad_tokens: bool [V], tokens that never come
    no_repeat_ngram: n-grams of this size occur at most once (Paulus et al. 2018, section 2.5)
    prompt: int32 [B,P], whose n-grams count for `no_repeat_ngram` too; -1 is no token
    repetition_penalty: above 1, tokens of the text so far get less probable, as in `Greedy`; for a beam
    source, source_ngram: int32 [B,S], whose n-grams of this size do not occur; -1 is no token
    bad_phrases: int32 [P,L], phrases that never come; -1 stands before shorter ones
    suppressed: bool [V], tokens that never come, not even as a forced one
    suppressed_first: bool [V], tokens that do not come first, or second behind a forced one
    renormalize: whether scores are log-probabilities again in the end
    """

    forced_bos: Array | int | None = None
    forced_eos: Array | int | None = None
    max_length: Array | int | None = None
    min_length: Array | int | None = None
    bad_tokens: Array | None = None
    no_repeat_ngram: int | None = struct.field(pytree_node=False, default=None)
    prompt: Array | None = None
    repetition_penalty: Array | float | None = None
    source: Array | None = None
    source_ngram: int | None = struct.field(pytree_node=False, default=None)
    bad_phrases: Array | None = None
    suppressed: Array | None = None
    suppressed_first: Array | None = None
    renormalize: bool = struct.field(pytree_node=False, default=False)

    @property
    def is_empty(self) -> bool:
        """Whether every constraint is turned off."""
        values = (getattr(self, field.name) for field in _switches(self))
        return all(value is None or value is False for value in values)

    def check(self):
        """Raises ValueError for values outside their range."""
        if self.forced_eos is not None and self.max_length is None:
            raise ValueError(f"forced_eos={self.forced_eos} needs max_length; set it to the number of new tokens")
        if self.no_repeat_ngram is not None and self.no_repeat_ngram < 1:
            raise ValueError(f"no_repeat_ngram={self.no_repeat_ngram} must be at least 1; None allows all repetitions")

    def __call__(self, scores: Array, tokens: Array, length: Array, is_stop: Array) -> Array:
        """Scores [R,V] of the next token -> the same; -inf for tokens that must not come, 0 for the one that must.

        tokens [R,N] are the texts so far, of which the first `length` columns (a scalar) are filled; is_stop [V].
        """
        rows, vocab = scores.shape
        prompt_length = 0
        if self.prompt is not None:
            prompt_length = self.prompt.shape[1]
            tokens = jnp.concatenate([_repeat(self.prompt, rows), tokens], axis=1)
        filled = prompt_length + length
        if self.repetition_penalty is not None:
            is_filled = jnp.arange(tokens.shape[1])[None] < filled
            seen = _scatter(jnp.where(is_filled, tokens, -1), is_filled, vocab)
            penalized = jnp.where(scores > 0, scores / self.repetition_penalty, scores * self.repetition_penalty)
            scores = jnp.where(seen & (scores > -jnp.inf), penalized, scores)
        if self.no_repeat_ngram is not None:
            scores = jnp.where(_repeats_ngram(tokens, filled, self.no_repeat_ngram, vocab), -jnp.inf, scores)
        if self.source is not None and self.source_ngram is not None:
            source = _repeat(self.source, rows)
            context = _last(tokens, filled, self.source_ngram - 1)
            scores = jnp.where(_follows(source, source.shape[1], context, vocab), -jnp.inf, scores)
        if self.bad_phrases is not None:
            scores = jnp.where(_ends_phrase(tokens, filled, self.bad_phrases, vocab), -jnp.inf, scores)
        if self.bad_tokens is not None:
            scores = jnp.where(self.bad_tokens[None], -jnp.inf, scores)
        if self.min_length is not None:
            scores = jnp.where(is_stop[None] & (length < _column(self.min_length, rows)), -jnp.inf, scores)
        if self.forced_bos is not None:
            scores = jnp.where(length == 0, _only(self.forced_bos, vocab), scores)
        if self.forced_eos is not None and self.max_length is not None:
            is_last = length == _column(self.max_length, rows) - 1
            scores = jnp.where(is_last, _only(self.forced_eos, vocab), scores)
        if self.suppressed is not None:
            scores = jnp.where(self.suppressed[None], -jnp.inf, scores)
        if self.suppressed_first is not None:
            begin = 0 if self.forced_bos is None else 1
            scores = jnp.where(self.suppressed_first[None] & (length == begin), -jnp.inf, scores)
        return jax.nn.log_softmax(scores, axis=-1) if self.renormalize else scores


def _switches(constraints: Constraints) -> list[dataclasses.Field]:
    """The fields that turn a constraint on."""
    context = ("max_length", "prompt", "source")
    return [field for field in dataclasses.fields(constraints) if field.name not in context]


def _repeat(values: Array, rows: int) -> Array:
    """values [B,...] -> [R,...], each as often as a prompt has texts."""
    return jnp.repeat(on_mesh(jnp.asarray(values)), rows // len(values), axis=0)


def _column(length: Array | int, rows: int) -> Array:
    """A length, or one of each prompt [B] -> [1,1] or [R,1]."""
    length = jnp.asarray(length)
    return _repeat(length, rows)[:, None] if length.ndim else length[None, None]


def _last(tokens: Array, length: Array, count: int) -> Array:
    """tokens [R,N], `length` columns filled -> the last `count` of them [R,count]; -1 where there are too few."""
    places = length - count + jnp.arange(count)
    return jnp.where(places >= 0, tokens[:, jnp.maximum(places, 0)], -1)


def _repeats_ngram(tokens: Array, length: Array, size: int, vocab: int) -> Array:
    """tokens [R,N], `length` columns filled -> bool [R,V]: next tokens that complete an n-gram that the row has."""
    if tokens.shape[1] < size:
        return jnp.zeros((len(tokens), vocab), bool)
    return _follows(tokens, length, _last(tokens, length, size - 1), vocab)


def _follows(text: Array, length: Array | int, context: Array, vocab: int) -> Array:
    """text [R,N], `length` columns filled, and context [R,C] -> bool [R,V]: tokens that follow the context there."""
    size = context.shape[1] + 1
    if text.shape[1] < size:
        return jnp.zeros((len(text), vocab), bool)
    starts = jnp.arange(text.shape[1] - size + 1)
    matches = (starts + size <= length)[None] & (context >= 0).all(1, keepdims=True)
    for offset in range(size - 1):
        matches &= text[:, offset : offset + len(starts)] == context[:, offset, None]
    return _scatter(text[:, size - 1 :], matches, vocab)


def _ends_phrase(tokens: Array, length: Array, phrases: Array, vocab: int) -> Array:
    """tokens [R,N] and phrases [P,L] -> bool [R,V]: last tokens of phrases whose others are the end of a row."""
    phrases = on_mesh(jnp.asarray(phrases))
    context = _last(tokens, length, phrases.shape[1] - 1)
    matches = ((context[:, None] == phrases[None, :, :-1]) | (phrases[None, :, :-1] < 0)).all(-1)
    return _scatter(jnp.broadcast_to(phrases[None, :, -1], matches.shape), matches, vocab)


def _scatter(tokens: Array, holds: Array, vocab: int) -> Array:
    """tokens [R,n] and whether each counts -> bool [R,V]; -1 is no token."""
    places = jnp.where(holds & (tokens >= 0), tokens, vocab)
    return jnp.zeros((len(tokens), vocab), bool).at[jnp.arange(len(tokens))[:, None], places].set(True, mode="drop")


def _only(token: Array | int, vocab: int) -> Array:
    """[1,V]: 0 for one token, or for those of a mask [V], -inf for the rest."""
    chosen = jnp.asarray(token)
    is_chosen = chosen if chosen.ndim else jnp.arange(vocab) == chosen
    return jnp.where(is_chosen, 0.0, -jnp.inf)[None]
