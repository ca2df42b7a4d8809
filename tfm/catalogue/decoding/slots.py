"""Continuous batching: texts join a batch that is being written, and leave it (Yu et al. 2022, section 4).

    step      1    2    3    4    5
    place 0   a    a    a    c    c       c joins where a has ended
    place 1        b    b    b    b

Each place has a cache of its own length, so a text computes as it would alone, whatever stands beside it. A step is one
program for all places (`jax.vmap`): its products read each kernel once.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.decoding.cache import Cache, allocate_slots, extend, prefill, separate_cache
from tfm.decoding.sampling import Greedy, Sample, choose_token
from tfm.models.heads import CausalLM, next_logits
from tfm.params import PyTree


@struct.dataclass
class Draw:
    """How a text chooses its tokens; a batch has leaves [W].

    sample: the values of a draw, none of them None (`any_draw`)
    is_greedy: the most probable token, in place of a draw
    is_filtered: a value of `tfm.sampling.FILTERS` may exclude tokens
    """

    sample: Sample
    is_greedy: Array | np.ndarray
    is_filtered: Array | np.ndarray


@struct.dataclass
class TextSlots:
    """Texts in progress, leaves [W,...] of W places; that of one text has no W.

    cache: of every token but the last, of one row
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
    """A prompt [1,T], padded on the left up to starts [1], and the token after it: a text of up to `slots` tokens."""
    hidden, cache = prefill(model.decoder, config, tokens, starts, slots, model.memory)
    is_token = jnp.arange(tokens.shape[1]) >= starts[0]
    seen = jnp.zeros(config.padded_vocab, bool).at[tokens[0]].max(is_token)
    zero = jnp.zeros((), jnp.int32)
    text = TextSlots(separate_cache(config, cache), zero, jnp.float32(0), seen, zero, draw)
    return _append(text, next_logits(model, config, hidden[:, -1:])[0, 0], is_drawn=True, is_filtered=True)


@partial(jax.jit, static_argnums=0)
def places(count: int, text: TextSlots) -> TextSlots:
    """A batch of `count` places, all of which hold a text."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (count, *leaf.shape)), text)


@partial(jax.jit, donate_argnums=0)
def join(texts: TextSlots, text: TextSlots, place: Array) -> TextSlots:
    """The batch with a text at a place, a scalar; what stood there is gone."""
    return jax.tree.map(lambda leaves, leaf: leaves.at[place].set(leaf), texts, text)


@jax.jit
def take_places(texts: TextSlots, kept: Array) -> TextSlots:
    """The batch of the places kept [n]."""
    return jax.tree.map(lambda leaves: leaves[kept], texts)


@partial(jax.jit, static_argnums=(0, 1))
def with_room(config: Config, slots: int, texts: TextSlots) -> TextSlots:
    """The batch with `slots` slots for each text, at least as many as before."""
    cache = jax.vmap(lambda cache: allocate_slots(config, cache, slots))(texts.cache)
    return replace(texts, cache=replace(cache, slots=slots))


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def write_tokens(config: Config, is_drawn: bool, is_filtered: bool, model: CausalLM, texts: TextSlots) -> TextSlots:
    """Reads the last token of each text, and chooses the next one.

    is_drawn, is_filtered: whether any text draws, or excludes tokens from its draw; it is not computed else
    """

    def step(text: TextSlots) -> TextSlots:
        hidden, cache = extend(model.decoder, config, text.token[None, None], text.cache)
        logits = next_logits(model, config, hidden)[0, 0]
        return _append(replace(text, cache=cache), logits, is_drawn, is_filtered)

    return jax.vmap(step)(texts)


def _append(text: TextSlots, logits: Array, is_drawn: bool, is_filtered: bool) -> TextSlots:
    """The text with the token that it chooses by logits [V]."""
    draw, values = text.draw, text.draw.sample
    penalty = values.repetition_penalty

    def choose(strategy: Greedy | Sample) -> Array:
        return choose_token(strategy, logits[None], text.seen[None], text.step)[0]

    token = choose(Greedy(penalty))
    if is_drawn:
        plain = choose(Sample(penalty, values.temperature, seed=values.seed))
        drawn = jnp.where(draw.is_filtered, choose(values), plain) if is_filtered else plain
        token = jnp.where(draw.is_greedy, token, drawn)
    logprob = jax.nn.log_softmax(logits)[token]
    seen = text.seen | (jnp.arange(len(logits)) == token)
    return replace(text, token=token, logprob=logprob, seen=seen, step=text.step + 1)
