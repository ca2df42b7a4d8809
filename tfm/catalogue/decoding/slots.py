"""Continuous batching: texts join a batch that is being written, and leave it (Yu et al. 2022, section 4).

    step      1    2    3    4    5
    place 0   a    a    a    c    c       c joins where a has ended
    place 1        b    b    b    b

All texts write to the same slot of one cache. A text that joins is moved until its last token stands there, and the
mask of left padding hides what is before it, so it computes as it would alone:

    slot      0  1  2  3  4  5             0  1  2  3  4  5
    place 0   -  a  a  a  a           ->   c  c  c  c  c
    place 1   -  -  -  b  b                -  -  -  b  b
"""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.decoding.cache import Cache, allocate_slots, extend, map_leaves, move_slots, prefill, separate_cache
from tfm.decoding.sampling import Greedy, Sample, choose_token
from tfm.models.heads import CausalLM, next_logits
from tfm.params import PyTree


@struct.dataclass
class Draw:
    """How a text chooses its tokens; that of W texts has leaves [W].

    sample: the values of a draw, none of them None (`any_draw`)
    is_greedy: the most probable token, in place of a draw
    is_filtered: a value of `tfm.sampling.FILTERS` may exclude tokens
    """

    sample: Sample
    is_greedy: Array | np.ndarray
    is_filtered: Array | np.ndarray


@struct.dataclass
class TextSlots:
    """Texts in progress, leaves [W,...] of W places.

    cache: of every token but the last, a row for each text
    token: int32, the last token
    logprob: float32, its log-probability in nats
    seen: bool [V], the tokens of the text, prompt included
    step: int32, tokens that were chosen
    draw: how the next one is chosen
    """

    cache: Cache
    token: Array
    logprob: Array
    seen: Array
    step: Array
    draw: Draw


def any_draw(config: Config, strategy: Greedy | Sample) -> Draw:
    """The `Draw` of a strategy without constraints: what it turns off has the value that changes nothing."""
    values: dict[str, PyTree] = {"temperature": 1.0, "top_k": config.padded_vocab, "top_p": 1.0, "typical_p": 1.0}
    values |= {"min_p": 0.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "seed": 0, "repetition_penalty": 1.0}
    values |= {name: value for name in values if (value := getattr(strategy, name, None)) is not None}
    integers = ("top_k", "seed")
    for name, value in values.items():
        values[name] = np.asarray(value, np.int32 if name in integers else np.float32)
    is_filtered = isinstance(strategy, Sample) and strategy.filters
    return Draw(Sample(**values), np.asarray(isinstance(strategy, Greedy)), np.asarray(is_filtered))


@partial(jax.jit, static_argnums=(0, 1))
def read_prompt(config: Config, slots: int, model: CausalLM, tokens: Array, starts: Array, draw: Draw) -> TextSlots:
    """A prompt [1,T], padded on the left up to starts [1], and the token after it: a batch of one text, with `slots`
    slots."""
    hidden, cache = prefill(model.decoder, config, tokens, starts, slots, model.memory)
    is_token = jnp.arange(tokens.shape[1]) >= starts[0]
    seen = jnp.zeros((1, config.padded_vocab), bool).at[0, tokens[0]].max(is_token)
    draw = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], draw)
    text = TextSlots(separate_cache(config, cache), starts, jnp.zeros(1), seen, jnp.zeros_like(starts), draw)
    return _append(text, next_logits(model, config, hidden[:, -1:])[:, 0], is_drawn=True, is_filtered=True)


@partial(jax.jit, static_argnums=0)
def places(count: int, text: TextSlots) -> TextSlots:
    """A batch of `count` places, all of which hold a text."""
    return _map_places(lambda leaf, axis: jnp.repeat(leaf, count, axis=axis), text)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def move(config: Config, texts: TextSlots, length: Array) -> TextSlots:
    """The batch with `length` slots filled, a scalar: at least as many as its longest text needs."""
    return replace(texts, cache=move_slots(config, texts.cache, length))


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def join(config: Config, texts: TextSlots, text: TextSlots, place: Array) -> TextSlots:
    """The batch with a text at a place, a scalar; what stood there is gone. The batch has filled as many slots as the
    text needs, or more."""

    def put(leaves: Array, leaf: Array, axis: int) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(leaves, leaf, place, axis)

    moved = move_slots(config, text.cache, texts.cache.length)
    return _map_places(put, texts, replace(text, cache=moved))


@jax.jit
def take_places(texts: TextSlots, kept: Array) -> TextSlots:
    """The batch of the places kept [n]."""
    return _map_places(lambda leaf, axis: jnp.take(leaf, kept, axis=axis), texts)


@partial(jax.jit, static_argnums=(0, 1))
def with_room(config: Config, slots: int, texts: TextSlots) -> TextSlots:
    """The batch with `slots` slots, at least as many as before."""
    return replace(texts, cache=replace(allocate_slots(config, texts.cache, slots), slots=slots))


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def write_tokens(config: Config, is_drawn: bool, is_filtered: bool, model: CausalLM, texts: TextSlots) -> TextSlots:
    """Reads the last token of each text, and chooses the next one. A slot must be left.

    is_drawn, is_filtered: whether any text draws, or excludes tokens from its draw; it is not computed else
    """
    hidden, cache = extend(model.decoder, config, texts.token[:, None], texts.cache)
    logits = next_logits(model, config, hidden)[:, 0]
    return _append(replace(texts, cache=cache), logits, is_drawn, is_filtered)


def _map_places(function: Callable[..., Array], texts: TextSlots, *joined: TextSlots) -> TextSlots:
    """A function of leaves and the axis of their places, applied to a batch and those joined to it."""
    cache, caches = texts.cache, [batch.cache for batch in joined]
    states = map_leaves(partial(function, axis=1), cache.states, *(cache.states for cache in caches))
    starts = function(cache.starts, *(cache.starts for cache in caches), axis=0)
    mapped: dict[str, PyTree] = {"cache": replace(cache, states=states, starts=starts)}
    for name in [field.name for field in fields(TextSlots) if field.name not in mapped]:
        mapped[name] = jax.tree.map(partial(function, axis=0), *(getattr(batch, name) for batch in (texts, *joined)))
    return replace(texts, **mapped)


def _append(texts: TextSlots, logits: Array, is_drawn: bool, is_filtered: bool) -> TextSlots:
    """The texts with the tokens that they choose by logits [W,V]."""

    def choose(draw: Draw, logits: Array, seen: Array, step: Array) -> tuple[Array, Array]:
        values, penalty = draw.sample, draw.sample.repetition_penalty

        def by(strategy: Greedy | Sample) -> Array:
            return choose_token(strategy, logits[None], seen[None], step)[0]

        token = by(Greedy(penalty))
        if is_drawn:
            plain = by(Sample(penalty, values.temperature, seed=values.seed))
            drawn = jnp.where(draw.is_filtered, by(values), plain) if is_filtered else plain
            token = jnp.where(draw.is_greedy, token, drawn)
        return token, jax.nn.log_softmax(logits)[token]

    token, logprob = jax.vmap(choose)(texts.draw, logits, texts.seen, texts.step)
    seen = texts.seen | jax.nn.one_hot(token, logits.shape[1], dtype=bool)
    return replace(texts, token=token, logprob=logprob, seen=seen, step=texts.step + 1)
