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

from tfm.attention.attend import MASK_VALUE, Dense, attend, attention_scores, weighted_sum
from tfm.config.model import Config
from tfm.masks import left_padding
from tfm.models.encoder import Encoder, Memory, before, embed, placed, recalling, stack
from tfm.positions.absolute import rotate
from tfm.sharding import replicate_length, shard_like


@struct.dataclass
class Cache:
    """keys and values [L,B,S,K,H], of which row b has tokens in the slots from starts[b] (starts [B]) up to `length` (a scalar);
    and the memory of a translation model."""

    keys: Array
    values: Array
    starts: Array
    length: Array
    memory: Memory | None = None


def prefill(
    model: Encoder, config: Config, tokens: Array, starts: Array, slots: int, memory: Memory | None = None
) -> tuple[Array, Cache]:
    """Prompts [B,T], padded on the left up to starts [B] -> hidden states [B,T,D], and a cache of `slots` slots that holds them.

    A memory is kept beside them: its keys and values are computed once.
    """
    read = tokens.shape[1]
    memory = jax.tree.map(
        lambda each: shard_like(each, tokens, axis=1 if each.ndim > 2 else 0), memory
    )  # [L,B,...] or [B,S]
    positions = _positions(0, read, starts)
    x = embed(model.embed, config, tokens, positions)
    way = Kept(before(config, left_padding(starts)), **_placed(model, config, positions))
    x, made = stack(model, config, x, *recalling(way, None, memory))
    made, memory = _recalled(made, memory, starts)
    keys, values = (jnp.pad(each, ((0, 0), (0, 0), (0, slots - read), (0, 0), (0, 0))) for each in made)
    return replicate_length(x), Cache(keys, values, starts, jnp.int32(read), memory)


def extend(model: Encoder, config: Config, tokens: Array, cache: Cache) -> tuple[Array, Cache]:
    """The next tokens [B,T] of every row -> their hidden states [B,T,D], and the cache with them; the same as reading all at once.

    The cache must have T slots left: writing past the end cannot be noticed under `jit`.
    """
    positions = _positions(cache.length, tokens.shape[1], cache.starts)
    way = Cached(before(config, left_padding(cache.starts)), length=cache.length, **_placed(model, config, positions))
    x = embed(model.embed, config, tokens, positions)
    x, made = stack(model, config, x, *recalling(way, (cache.keys, cache.values), cache.memory))
    made, memory = _recalled(made, cache.memory, cache.starts - cache.length)
    write = lambda slots, new: jax.lax.dynamic_update_slice_in_dim(slots, new, cache.length, axis=2)
    keys, values = (write(old, new) for old, new in zip((cache.keys, cache.values), made, strict=True))
    return replicate_length(x), replace(
        cache, keys=keys, values=values, length=cache.length + tokens.shape[1], memory=memory
    )


@struct.dataclass
class Kept(Dense):
    """The plain way of attending, and the keys (turned) and values [B,T,K,H] are handed back, of all positions on every device."""

    def __call__(self, q, k, v, given=None, rate=0.0, key=None):  # noqa: D102
        k, v = replicate_length(rotate(k, self.turns)), replicate_length(v)
        return attend(rotate(q, self.turns), k, v, self.mask, self.bias, rate, key), (k, v)


@struct.dataclass
class Cached(Kept):
    """Attends to the keys and values [B,S,K,H] that the layer is given, `length` of them filled, and to its own, which it hands back."""

    length: Array = 0  # type: ignore[assignment]

    def __call__(
        self, q: Array, k: Array, v: Array, given: Any = None, rate: float = 0.0, key: Array | None = None
    ) -> tuple[Array, Any]:
        """q [B,T,K,G,H], k and v [B,T,K,H] -> [B,T,K,G,H] and the pair (k, v): scores are joined, never keys."""
        past_k, past_v = given
        q, k, v = rotate(q, self.turns), replicate_length(rotate(k, self.turns)), replicate_length(v)
        slots, new = past_k.shape[1], self.length + jnp.arange(q.shape[1])
        places = jnp.concatenate([jnp.arange(slots), new])[None]
        written = jnp.concatenate([jnp.arange(slots) < self.length, jnp.ones(len(new), bool)])[None, None]
        scores = jnp.concatenate([attention_scores(q, past_k), attention_scores(q, k)], axis=-1)
        if self.bias is not None:
            scores = scores + self.bias(new[None], places)
        allowed = written if self.mask is None else self.mask(new[None], places) & written
        weights = jax.nn.softmax(jnp.where(allowed[:, None, None], scores, MASK_VALUE), axis=-1)
        return weighted_sum(weights[..., :slots], past_v) + weighted_sum(weights[..., slots:], v), (k, v)


def _recalled(made: Any, memory: Memory | None, starts: Array) -> tuple[Any, Memory | None]:
    """What a decoder's own attention handed back, and the memory with the attention that it got from queries behind starts [B]."""
    if memory is None:
        return made, None
    made, weights = made
    if weights is None or memory.seen is None:
        return made, memory
    real = jnp.arange(weights.shape[-2])[None] >= starts[:, None]
    got = jnp.where(real[:, :, None], weights.mean((0, 2, 3)), 0).sum(1)
    return made, replace(memory, seen=memory.seen + got)


def _placed(model: Encoder, config: Config, positions: Array) -> dict[str, Any]:
    """How a decoder's attention learns of positions; few queries at a time need no kernel, not even those to a memory."""
    return placed(model, config, positions, both=False) | {"kernel": "einsum"}


def _positions(length: Array | int, new: int, starts: Array) -> Array:
    """Positions [B,T] of the next slots: the first token of a row is at 0, and so, for lack of a better place, is its padding."""
    return jnp.maximum((length + jnp.arange(new))[None] - starts[:, None], 0)
