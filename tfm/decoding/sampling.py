"""Choosing the next token: the most probable one, or one drawn from a distribution that may be sharpened and cut."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.masks import MASK_VALUE

Knob = Array | float | None


@struct.dataclass
class Rules:
    """What a text must and must not do, whatever is probable.

    first: the token that it begins with
    last: the token that it ends with where it gets as long as `length`
    least: tokens before it may end
    never: [V], true for tokens that do not come at all
    ngram: so many tokens in a row come only once (Paulus et al. 2018, section 2.5), what was there `before` [B,P] included
    """

    first: Array | int | None = None
    last: Array | int | None = None
    length: Array | int = 0
    least: Array | int | None = None
    never: Array | None = None
    before: Array | None = None
    ngram: int = struct.field(pytree_node=False, default=0)

    def __call__(self, scores: Array, tokens: Array, number: Array, ends: Array) -> Array:
        """Scores [R,V] of the token that comes after `number` in each row of tokens [R,N]; ends [V] are those that end a text.

        What may not be is -inf; what must be is 0.
        """
        vocab = scores.shape[-1]
        if self.ngram:
            past = (
                tokens[:, :0]
                if self.before is None
                else jnp.repeat(self.before, len(tokens) // len(self.before), axis=0)
            )
            texts = jnp.concatenate([past, tokens], axis=1)
            scores = jnp.where(_repeated_ngrams(texts, past.shape[1] + number, self.ngram, vocab), -jnp.inf, scores)
        if self.never is not None:
            scores = jnp.where(self.never[None], -jnp.inf, scores)
        if self.least is not None:
            scores = jnp.where(ends[None] & (number < self.least), -jnp.inf, scores)
        for token, place in ((self.first, 0), (self.last, self.length - 1)):
            if token is not None:
                only = jnp.where(jnp.arange(vocab) == token, 0, -jnp.inf)[None]
                scores = jnp.where(number == place, only, scores)
        return scores


def _repeated_ngrams(tokens: Array, number: Array, size: int, vocab: int) -> Array:
    """bool [R,V]: the tokens which, after the first `number` of each row of [R,N], would complete `size` tokens that are there already."""
    rows, room = tokens.shape
    if room < size:
        return jnp.zeros((rows, vocab), bool)
    starts = jnp.arange(room - size + 1)
    begun = jax.lax.dynamic_slice_in_dim(tokens, jnp.maximum(number - size + 1, 0), size - 1, axis=1)
    same = (starts + size <= number)[None] & (number >= size)
    for place in range(size - 1):
        same &= tokens[:, place : place + len(starts)] == begun[:, place, None]
    return jnp.zeros((rows, vocab), bool).at[jnp.arange(rows)[:, None], tokens[:, size - 1 :]].max(same)


@struct.dataclass
class Greedy:
    """The most probable token.

    repetition: above 1, it makes tokens that the text has already less probable (Keskar et al. 2019, section 4.1)
    rules: what comes before probability
    """

    repetition: Knob = None
    rules: Rules | None = None

    def check(self):
        """Raises ValueError for a knob that makes no sense."""
        _at_least("repetition", self.repetition, 1)


@struct.dataclass
class Sample:
    """A token drawn from the model's distribution; every knob is a number, or an array [B] with one for each row, None where not used.

    repetition: as of `Greedy`
    temperature: the logits are divided by it; below 1 the probable becomes more probable
    top_k: only the so many most probable tokens
    top_p: only the smallest set of most probable tokens that has this probability together (Holtzman et al. 2020, section 3.1)
    min_p: only tokens with this share of the probability of the most probable one (Nguyen et al. 2024, section 3)
    seed: integer, of a row's draws: they depend on it and on the row's own text alone
    rules: what comes before probability

    They apply in this order, each to what the one before has left.
    """

    repetition: Knob = None
    temperature: Knob = None
    top_k: Array | int | None = None
    top_p: Knob = None
    min_p: Knob = None
    seed: Array | int = 0
    rules: Rules | None = None

    def check(self):
        """Raises ValueError for a knob that makes no sense."""
        _at_least("repetition", self.repetition, 1)
        _at_least("top_k", self.top_k, 1)
        if self.temperature is not None and not np.all(np.asarray(self.temperature) > 0):
            raise ValueError(
                f"temperature={self.temperature} must be above 0; for the most probable token choose greedily"
            )
        for name in ("top_p", "min_p"):
            knob = getattr(self, name)
            if knob is not None and not np.all((np.asarray(knob) > 0) & (np.asarray(knob) <= 1)):
                raise ValueError(f"{name}={knob} must be above 0 and at most 1")


def _at_least(name: str, knob: Knob, least: int):
    if knob is not None and not np.all(np.asarray(knob) >= least):
        raise ValueError(f"{name}={knob} must be at least {least}")


def choose(how: Greedy | Sample, logits: Array, seen: Array | None, number: Array) -> Array:
    """float32 logits [B,V], seen [B,V]: tokens the text has, number: how many were chosen before -> the next token [B] int32."""
    if how.repetition is not None and seen is not None:
        logits = repeated(logits, seen, how.repetition)
    if isinstance(how, Greedy):
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    rows = len(logits)
    keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), number))(
        jnp.broadcast_to(jnp.asarray(how.seed), rows)
    )
    if how.temperature is not None:
        logits = logits / _column(how.temperature, rows)
    if how.top_k is None and how.top_p is None and how.min_p is None:
        return jax.vmap(jax.random.categorical)(keys, logits).astype(jnp.int32)
    order = jnp.argsort(logits, axis=-1, descending=True)
    ranked = cut(how, jnp.take_along_axis(logits, order, axis=-1))
    rank = jax.vmap(jax.random.categorical)(keys, ranked)
    return jnp.take_along_axis(order, rank[:, None], axis=-1)[:, 0].astype(jnp.int32)


def cut(how: Sample, ranked: Array) -> Array:
    """Logits [B,V] in falling order -> the same, with -inf for what top-k, top-p and min-p leave out; the first always stays."""
    rows, vocab = ranked.shape
    if how.top_k is not None:
        ranked = jnp.where(jnp.arange(vocab)[None] < jnp.maximum(_column(how.top_k, rows), 1), ranked, -jnp.inf)
    if how.top_p is not None:
        probabilities = jax.nn.softmax(ranked, axis=-1)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities
        first = jnp.arange(vocab)[None] == 0
        top_p = _column(how.top_p, rows)
        ranked = jnp.where(
            first | (before < top_p) | (top_p >= 1), ranked, -jnp.inf
        )  # a float32 sum can reach 1 before the last token
    if how.min_p is not None:
        ranked = jnp.where(ranked >= ranked[:, :1] + jnp.log(_column(how.min_p, rows)), ranked, -jnp.inf)
    return ranked


def repeated(logits: Array, seen: Array, penalty: Knob) -> Array:
    """Logits [B,V], those of tokens that are seen [B,V] divided by the penalty, or multiplied where they are negative."""
    penalty = _column(penalty, len(logits))
    return jnp.where(seen & (logits > MASK_VALUE), jnp.where(logits > 0, logits / penalty, logits * penalty), logits)


def _column(knob, rows: int) -> Array:
    """A number, or one for each row -> [B,1]."""
    return jnp.broadcast_to(jnp.asarray(knob), rows)[:, None]
