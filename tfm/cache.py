"""The KV cache: keys and values of the tokens so far, so that a decoder reads each token once.

Rows are padded on the left, so that their last tokens stand in one column and each step writes to one slot of every row:

    row 0   -  -  a  b  c        starts 2     positions  0  0  0  1  2
    row 1   d  e  f  g  h        starts 0     positions  0  1  2  3  4

A layer reads the cache and hands back the keys and values of the new tokens; they are written after the last layer, all at once. A scan
then never copies the cache, and under `jit` with donation it stays where it is.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention import FORBIDDEN, Dense, attend, compare, mix
from tfm.config import Config
from tfm.masks import causal, since
from tfm.model import Encoder, embed, stack
from tfm.positions import rotary, rotate


@struct.dataclass
class Cache:
    """keys and values [L,B,S,K,H], of which row b has tokens in the slots from starts[b] (starts [B]) up to `length` (a scalar)."""

    keys: Array
    values: Array
    starts: Array
    length: Array


def prefill(model: Encoder, config: Config, tokens: Array, starts: Array, slots: int) -> tuple[Array, Cache]:
    """Prompts [B,T], padded on the left up to starts [B] -> hidden states [B,T,D], and a cache of `slots` slots that holds them."""
    read = tokens.shape[1]
    positions = _positions(0, read, starts)
    x = embed(model.embed, config, tokens, positions)
    x, made = stack(model, config, x, Kept(causal() & since(starts), turns=rotary(config, positions)))
    keys, values = (jnp.pad(each, ((0, 0), (0, 0), (0, slots - read), (0, 0), (0, 0))) for each in made)
    return x, Cache(keys, values, starts, jnp.int32(read))


def extend(model: Encoder, config: Config, tokens: Array, cache: Cache) -> tuple[Array, Cache]:
    """The next tokens [B,T] of every row -> their hidden states [B,T,D], and the cache with them; the same as reading all at once.

    The cache must have T slots left: writing past the end cannot be noticed under `jit`.
    """
    positions = _positions(cache.length, tokens.shape[1], cache.starts)
    way = Cached(causal() & since(cache.starts), turns=rotary(config, positions), length=cache.length)
    x = embed(model.embed, config, tokens, positions)
    x, made = stack(model, config, x, way, (cache.keys, cache.values))
    write = lambda slots, new: jax.lax.dynamic_update_slice_in_dim(slots, new, cache.length, axis=2)
    keys, values = (write(old, new) for old, new in zip((cache.keys, cache.values), made, strict=True))
    return x, replace(cache, keys=keys, values=values, length=cache.length + tokens.shape[1])


@struct.dataclass
class Kept(Dense):
    """The plain way of attending, and the keys (turned) and values [B,T,K,H] are handed back."""

    def __call__(self, q, k, v, given=None, rate=0.0, key=None):  # noqa: D102
        k = rotate(k, self.turns)
        return attend(rotate(q, self.turns), k, v, self.mask, self.bias, rate, key), (k, v)


@struct.dataclass
class Cached(Kept):
    """Attends to the keys and values [B,S,K,H] that the layer is given, `length` of them filled, and to its own, which it hands back."""

    length: Array = 0  # type: ignore[assignment]

    def __call__(self, q: Array, k: Array, v: Array, given: Any = None, rate: float = 0.0, key: Array | None = None) -> tuple[Array, Any]:
        """q [B,T,K,G,H], k and v [B,T,K,H] -> [B,T,K,G,H] and the pair (k, v): scores are joined, never keys."""
        past_k, past_v = given
        q, k = rotate(q, self.turns), rotate(k, self.turns)
        slots, new = past_k.shape[1], self.length + jnp.arange(q.shape[1])
        places = jnp.concatenate([jnp.arange(slots), new])[None]
        written = jnp.concatenate([jnp.arange(slots) < self.length, jnp.ones(len(new), bool)])[None, None]
        scores = jnp.concatenate([compare(q, past_k), compare(q, k)], axis=-1)
        if self.bias is not None:
            scores = scores + self.bias(new[None], places)
        allowed = written if self.mask is None else self.mask(new[None], places) & written
        weights = jax.nn.softmax(jnp.where(allowed[:, None, None], scores, FORBIDDEN), axis=-1)
        return mix(weights[..., :slots], past_v) + mix(weights[..., slots:], v), (k, v)


def _positions(length: Array | int, new: int, starts: Array) -> Array:
    """Positions [B,T] of the next slots: the first token of a row is at 0, and so, for lack of a better place, is its padding."""
    return jnp.maximum((length + jnp.arange(new))[None] - starts[:, None], 0)
