"""One vector of a text or an image, out of the hidden states of its tokens or patches."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.project import Attention, attention_specs, multi_head_attention
from tfm.config.model import Config
from tfm.feed_forwards import FeedForward, feed_forward, feed_forward_specs
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import expand_param
from tfm.params import vector_spec
from tfm.sharding import fold_rows, named_sharding, replicate_length, spec_of, take_positions


def pool(hidden: Array, valid: Array | None = None, kind: str = "mean") -> Array:
    """hidden [B,T,D] -> [B,D], in the same dtype; valid [B,T] is True for a token and False for padding.

    Of rows of n texts it is [B*n,D], a vector of each: valid is bool [B,n,T] then, the tokens of every text
    (`segment_tokens`).

    kind: mean | first | last | max | ends | mean_sqrt | weighted_mean, over the tokens that are no padding. Raises
        ValueError for another kind.
    """
    if kind not in POOLS:
        raise ValueError(f"kind={kind!r} pools nothing; choose {', '.join(POOLS)}")
    if valid is not None and valid.ndim == 3:
        return _pool_texts(hidden, valid, kind)
    return POOLS[kind](hidden, valid)


def segment_tokens(segments: Array, count: int) -> Array:
    """segments [B,T] of rows of `count` texts, numbered from 1, 0 for padding -> bool [B,n,T]: the tokens of each."""
    numbers = jnp.arange(1, count + 1, dtype=segments.dtype)
    return replicate_length(segments)[:, None] == numbers[None, :, None]


def _pool_texts(hidden: Array, texts: Array, kind: str) -> Array:
    """hidden [B,T,D], texts [B,n,T] -> [B*n,D]: `pool` of every text alone; zeros for one without tokens."""
    states = replicate_length(hidden)
    if kind == "ends":
        half = states.shape[-1] // 2
        lasts, firsts = (_pool_texts(states, texts, end) for end in ("last", "first"))
        return jnp.concatenate([lasts[:, :half], firsts[:, half:]], axis=-1)
    if kind == "max":
        values = jnp.where(texts[..., None], states[:, None], jnp.finfo(states.dtype).min).max(2)
        return fold_rows(jnp.where(texts.any(-1)[..., None], values, jnp.zeros((), states.dtype)))
    weights = _weights(texts, kind)
    vectors = jnp.einsum("bnt,btd->bnd", weights, states.astype(jnp.float32), precision="highest")
    return fold_rows(vectors.astype(hidden.dtype))


def _weights(texts: Array, kind: str) -> Array:
    """texts bool [B,n,T] -> float32 [B,n,T]: how much each state counts in the vector of a text, which is a sum."""
    count = texts.sum(-1, keepdims=True, dtype=jnp.int32)
    order = jnp.cumsum(texts, axis=-1, dtype=jnp.int32)  # 1 for the first token of a text
    if kind in ("first", "last"):
        return (texts & (order == (jnp.int32(1) if kind == "first" else count))).astype(jnp.float32)
    weights, sizes = texts.astype(jnp.float32), jnp.maximum(count, 1).astype(jnp.float32)
    if kind == "weighted_mean":
        return weights * order.astype(jnp.float32) / (sizes * (sizes + 1) / 2)
    return weights / (sizes if kind == "mean" else jnp.sqrt(sizes))


def mean(hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D], valid [B,T] -> [B,D]: the mean over the tokens that are no padding, in float32."""
    wide = hidden.astype(jnp.float32)
    if valid is None:
        return wide.mean(1).astype(hidden.dtype)
    weights = valid.astype(jnp.float32)[:, :, None]
    return ((wide * weights).sum(1) / jnp.maximum(weights.sum(1), 1)).astype(hidden.dtype)


def mean_sqrt(hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D], valid [B,T] -> [B,D]: the sum over the tokens, divided by the square root of their number."""
    counts = jnp.full((len(hidden), 1), hidden.shape[1], jnp.float32) if valid is None else valid.sum(1, keepdims=True)
    return (mean(hidden.astype(jnp.float32), valid) * jnp.sqrt(counts.astype(jnp.float32))).astype(hidden.dtype)


def weighted_mean(hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D], valid [B,T] -> [B,D]: the mean with weights 1 to T, so that later tokens count for more.

    Source: Muennighoff 2022, equation 2.
    """
    weights = jnp.broadcast_to(jnp.arange(1, hidden.shape[1] + 1, dtype=jnp.float32), hidden.shape[:2])
    weights = weights if valid is None else jnp.where(valid.astype(bool), weights, 0)
    total = (hidden.astype(jnp.float32) * weights[:, :, None]).sum(1)
    return (total / jnp.maximum(weights.sum(1, keepdims=True), 1)).astype(hidden.dtype)


def first(hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D] -> [B,D]: the state of the first token, [CLS] in BERT."""
    return replicate_length(hidden)[:, 0]


def last(hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D], valid [B,T] -> [B,D]: the last token that is no padding; that of a decoder has read all."""
    if valid is None:
        return replicate_length(hidden)[:, -1]
    places = jnp.arange(hidden.shape[1], dtype=jnp.int32)
    where = jnp.where(valid.astype(bool), places[None], jnp.int32(0)).max(1, keepdims=True)
    return take_positions(hidden, where)[:, 0]


def maximum(hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D], valid [B,T] -> [B,D]: the largest value of every feature; 0 for a text without tokens."""
    if valid is None:
        return hidden.max(1)
    is_token = valid.astype(bool)[:, :, None]
    values = jnp.where(is_token, hidden, jnp.finfo(hidden.dtype).min).max(1)
    return jnp.where(is_token.any(1), values, jnp.zeros((), hidden.dtype))


def ends(hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D] of two directions of reading -> [B,D]: each where it has read all, the first half of the last
    token and the second half of the first."""
    half = hidden.shape[-1] // 2
    return jnp.concatenate([last(hidden, valid)[:, :half], first(hidden)[:, half:]], axis=-1)


POOLS = {
    "first": first,
    "mean": mean,
    "last": last,
    "max": maximum,
    "ends": ends,
    "mean_sqrt": mean_sqrt,
    "weighted_mean": weighted_mean,
}


@struct.dataclass
class AttentionPooler:
    """A trained query [D], its attention to all states, and the norm before a feed-forward layer (Lee et al. 2019,
    section 3.2; for images Zhai et al. 2022, section 3.5)."""

    query: Array
    attention: Attention
    norm: Norm
    feed_forward: FeedForward


def pooler_specs(config: Config) -> AttentionPooler:
    """The spec tree."""
    return AttentionPooler(
        query=vector_spec(config, "D"),
        attention=attention_specs(config),
        norm=norm_specs(config),
        feed_forward=feed_forward_specs(config),
    )


@jax.named_scope("attention pool")
def attention_pool(pooler: AttentionPooler, config: Config, hidden: Array) -> Array:
    """hidden [B,T,D] -> [B,D], in the same dtype: x + feed_forward(norm(x)) of what attention x has gathered."""
    states = replicate_length(hidden)
    query = expand_param(pooler.query, states)
    shape, sharding = (len(states), 1, states.shape[-1]), named_sharding(states, states, *spec_of(states))
    query = jnp.broadcast_to(query, shape, out_sharding=sharding)
    x = multi_head_attention(pooler.attention, config, query, memory=states)
    return (x + feed_forward(pooler.feed_forward, config, norm(config, pooler.norm, x)))[:, 0]
