"""Drafts: tokens that a text may go on with, cheap to find, for a model to check (`tfm.Speculation`)."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.decoding.cache import Cache, extend
from tfm.decoding.sampling import Greedy, Sample, distribution
from tfm.models.heads import CausalLM, next_logits
from tfm.sharding import first_entries, replicate


@struct.dataclass
class NGram:
    """The tokens that followed the last few tokens earlier in the text (Saxena 2023, prompt lookup decoding).

    size: tokens that must be the same; fewer where there are none
    """

    size: int = struct.field(pytree_node=False, default=3)


@struct.dataclass
class DraftModel:
    """A smaller language model with the same vocabulary (Leviathan et al. 2023)."""

    model: CausalLM
    config: Config = struct.field(pytree_node=False)


Draft = NGram | DraftModel


class Proposal(NamedTuple):
    """Tokens [K] that may come next, the probabilities [K,V] with which each was drawn (zeros: there is none), and the
    cache of a draft model, which has read them."""

    tokens: Array
    probabilities: Array
    cache: Cache | None


def from_ngram(draft: NGram, text: Array, first: Array, length: Array, shape: tuple[int, int]) -> Proposal:
    """text [S], whose tokens are those from `first` to `length` -> K tokens of a vocabulary of V, for a shape (K,V).

    The last place with as many equal tokens as possible says what follows.
    """
    ahead, vocab = shape
    places = jnp.arange(len(text))
    best = jnp.int32(-1)
    for size in range(1, draft.size + 1):
        same = jnp.ones(len(text), bool)
        for back in range(size):  # the token `back` places before a place, and before the end
            same &= jnp.roll(text, back) == text[jnp.maximum(length - 1 - back, 0)]
        same &= (places - size + 1 >= first) & (places < length - 1)
        best = jnp.where(same.any(), jnp.where(same, places, -1).max(), best)
    following = best + 1 + jnp.arange(ahead)
    is_known = (best >= 0) & (following < length)
    tokens = text[jnp.minimum(following, len(text) - 1)]
    return Proposal(tokens, jax.nn.one_hot(jnp.where(is_known, tokens, -1), vocab, dtype=jnp.float32), None)


def from_model(
    draft: DraftModel, cache: Cache, last: Array, strategy: Greedy | Sample, seen: Array | None, key: Array, ahead: int
) -> Proposal:
    """The `ahead` tokens that a draft model writes after the token `last`, a scalar; its cache has read all but that.

    seen: bool [1,V], the tokens of the text; None without a repetition penalty
    """
    config, model = draft.config, draft.model

    def step(carry: tuple[Any, Array, Array | None], key: Array):
        cache, token, seen = carry
        hidden, cache = extend(model.decoder, config, token[None, None], cache)
        logits = replicate(first_entries(next_logits(model, config, hidden)[:, 0], config.vocab))
        probabilities = distribution(strategy, logits, seen)[0]
        token = jax.random.categorical(key, jnp.log(probabilities)).astype(jnp.int32)
        seen = None if seen is None else seen | (jnp.arange(config.vocab)[None] == token)
        return (cache, token, seen), (token, probabilities)

    keys = jax.random.split(key, ahead + 1)  # the last step only reads the last token
    (cache, _, _), (tokens, probabilities) = jax.lax.scan(step, (cache, last, seen), keys)
    return Proposal(tokens[:ahead], probabilities[:ahead], cache)


def rewound(cache: Cache, length: Array) -> Cache:
    """A cache whose first `length` slots are read."""
    return replace(cache, length=length)
