"""Attention: on arrays (`attend`), and as a layer with its projections (`multi_head_attention`).

A way of attending (`Dense`, `Recorded`, the cached one of `tfm.cache`) is a small object that every layer calls with its queries, keys
and values. It may be given something for each layer, and hand something back for each: that is how weights are looked at and how keys
are kept, without a layer knowing.

Tried, on a CPU, as the share of the processor time of a training step of 4 layers of width 128 on 12 x 64 tokens: `attend` with a backward
pass of its own that keeps the weights 0.91, but 0.97 of a step on 16 x 128 tokens, and without forward mode and second derivatives; with
heads before positions in all its arrays 0.97; under `shard_map` 0.98; weights that are divided by their sums only after they have
met the values, with a derivative that says so (`custom_jvp`), 0.96 to 1.00, but 1.02 of a step of width 256 on 32 x 128 tokens.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.attention.chunked import MASK_VALUE
from tfm.attention.kernels import choose_kernel, chunked, cudnn, splash
from tfm.config.model import Config
from tfm.masks import Constant, Mask
from tfm.ops import Linear, Norm, dropout, linear, linear_specs, norm, norm_specs, split
from tfm.positions.absolute import rotate
from tfm.positions.disentangled import disentangled, place_specs
from tfm.sharding import positions_like, replicate_length


@struct.dataclass
class Attention:
    """Projections of multi-head attention; with fewer key/value heads than heads it is grouped-query attention. The norms of queries and
    keys are None where a model has none, and so are the projections of distances (`tfm.distances`)."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    place_query: Linear | None = None
    place_key: Linear | None = None


def attend(
    q: Array,
    k: Array,
    v: Array,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    rate: float = 0.0,
    key: Array | None = None,
) -> Array:
    """q [B,T,K,G,H] or [B,T,N,H], k and v [B,S,K,H] -> the shape of q; softmax in float32.

    Scaled dot-product attention (Vaswani et al. 2017, eq. 1). N = K * G query heads share K key/value heads (Ainslie et al. 2023).
    `rate` and `key` drop attention weights. A query that may see no key gets the mean of all values.
    """
    if q.ndim == k.ndim:
        batch, length, heads, size = q.shape
        if heads % k.shape[2]:
            raise ValueError(
                f"q has {heads} heads, which k's {k.shape[2]} must divide; shapes are q {q.shape} and k {k.shape}"
            )
        grouped = q.reshape(batch, length, k.shape[2], -1, size)
        return attend(grouped, k, v, mask, bias, rate, key).reshape(q.shape)
    weights = dropout(attention_weights(q, k, mask, bias), rate, key)
    y = weighted_sum(weights, v)
    if bias is None:
        return y
    term = bias.values(weights, positions_like(q), jnp.arange(k.shape[1])[None])
    return y if term is None else y + term.astype(y.dtype)


def attention_weights(q: Array, k: Array, mask: Mask | None = None, bias: ScoreBias | None = None) -> Array:
    """q [B,T,K,G,H], k [B,S,K,H] -> float32 [B,K,G,T,S]; each row sums to 1.

    On a mesh that shards the length, each device scores its own queries against all keys.
    """
    i, j = positions_like(q), jnp.arange(k.shape[1])[None]
    scores = attention_scores(q, k)
    if bias is not None:
        scores = bias.apply(scores, i, j)
    if mask is not None:
        scores = jnp.where(mask(i, j)[:, None, None], scores, MASK_VALUE)
    return jax.nn.softmax(scores, axis=-1)


def attention_scores(q: Array, k: Array) -> Array:
    """q [B,T,K,G,H], k [B,S,K,H] -> float32 scores [B,K,G,T,S]: q k / sqrt(H)."""
    return jnp.einsum(
        "BTKGH,BSKH->BKGTS", q * q.shape[-1] ** -0.5, replicate_length(k), preferred_element_type=jnp.float32
    )


def weighted_sum(weights: Array, v: Array) -> Array:
    """weights [B,K,G,T,S], v [B,S,K,H] -> [B,T,K,G,H] in the dtype of v."""
    return jnp.einsum("BKGTS,BSKH->BTKGH", weights.astype(v.dtype), replicate_length(v))


# What `tfm.choose_kernel` chooses from.
KERNELS: dict[str, Callable[..., Array]] = {"einsum": attend, "chunked": chunked, "cudnn": cudnn, "splash": splash}


@struct.dataclass
class Near:
    """What is different in layers that see only their neighbourhood: a mask beside the others', and their own angles."""

    mask: Mask
    turns: Array | None


@struct.dataclass
class Dense:
    """The plain way: every query is compared with every key. `turns` are the angles of rotary positions (`tfm.rotary`), or None; `near`
    is None where all layers are alike; `distances` are rows [R,D] that each layer makes a bias of (`tfm.distances`). `kernel` is what
    computes it (`tfm.choose_kernel`)."""

    mask: Mask | None = None
    bias: ScoreBias | None = None
    turns: Array | None = None
    near: Near | None = None
    distances: Array | None = None
    kernel: str = struct.field(pytree_node=False, default="auto")

    def at(self, far: Array) -> "Dense":
        """The way of one layer: it sees everything where `far`, a bool scalar, else what is near. Raises ValueError without `near`."""
        if self.near is None:
            raise ValueError(
                "the layers of this model are not alike; a way of attending needs near, which tfm.placed gives it"
            )
        mask = self.near.mask | Constant(far)
        turns = jax.tree.map(lambda one, other: jnp.where(far, one, other), self.turns, self.near.turns)
        return replace(self, mask=mask if self.mask is None else self.mask & mask, turns=turns, near=None)

    def __call__(
        self, q: Array, k: Array, v: Array, given: Any = None, rate: float = 0.0, key: Array | None = None
    ) -> tuple[Array, Any]:
        """q [B,T,K,G,H], k and v [B,T,K,H] -> [B,T,K,G,H], and what is handed back; a key drops attention weights at `rate`.

        The kernel and the reason for it are written into the program, as a scope, where profiles and the trainer find them.
        """
        q, k = rotate(q, self.turns), rotate(k, self.turns)
        dropped: dict[str, Any] = {} if key is None or not rate else {"rate": rate, "key": key}
        choice = choose_kernel(q, k, self.mask, self.bias, rate if dropped else 0.0, self.kernel)
        with jax.named_scope(f"attention[{choice.name}: {choice.reason}]"):
            return KERNELS[choice.name](q, k, v, self.mask, self.bias, **dropped), None


@struct.dataclass
class Recorded(Dense):
    """The same, and the attention weights [B,K,G,T,S] of each layer are handed back: `x, weights = tfm.stack(blocks, config, x, way)`."""

    def __call__(self, q, k, v, given=None, rate=0.0, key=None):  # noqa: D102
        weights = attention_weights(rotate(q, self.turns), rotate(k, self.turns), self.mask, self.bias)
        return weighted_sum(dropout(weights, rate, key), v), weights


def attention_specs(config: Config) -> Attention:
    """Projections to heads and back."""
    each = norm_specs(config, "H") if config.qk_norm else None
    place_query, place_key = place_specs(config)
    return Attention(
        query=linear_specs(config, "D", "KGH"),
        key=linear_specs(config, "D", "KH"),
        value=linear_specs(config, "D", "KH"),
        output=linear_specs(config, "KGH", "D"),
        query_norm=each,
        key_norm=each,
        place_query=place_query,
        place_key=place_key,
    )


def multi_head_attention(
    layer: Attention,
    config: Config,
    x: Array,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    key: Array | None = None,
    memory: Array | None = None,
) -> Array:
    """x [B,T,D] -> [B,T,D]: multi-head attention over x itself, or over memory [B,S,D] (Vaswani et al. 2017, section 3.2.2)."""
    other = None if memory is None else keys_values(layer, config, memory)
    return attention_sublayer(layer, config, x, Dense(mask, bias, kernel=config.kernel), None, key, other)[0]


def attention_sublayer(
    layer: Attention,
    config: Config,
    x: Array,
    way: Dense,
    given: Any = None,
    key: Array | None = None,
    memory: tuple[Array, Array] | None = None,
) -> tuple[Array, Any]:
    """x [B,T,D] -> [B,T,D], and what the way of attending hands back; `memory` are keys and values [B,S,K,H] of something else."""
    q = linear(layer.query, "BTD,DKGH->BTKGH", x)
    q = q if layer.query_norm is None else norm(config, layer.query_norm, q)
    k, v = keys_values(layer, config, x) if memory is None else memory
    if config.relative != "none" and memory is None:
        if way.distances is None:
            raise ValueError(
                f"relative={config.relative} needs a way of attending with distances, which tfm.placed gives it"
            )
        row_key, key = split(key, 2)
        q, bias = disentangled(layer, config, dropout(way.distances, config.dropout, row_key), q, k)
        way = replace(way, bias=bias)
    y, found = way(q, k, v, given, config.attn_rate, key)
    return linear(layer.output, "BTKGH,KGHD->BTD", y), found


def keys_values(layer: Attention, config: Config, source: Array) -> tuple[Array, Array]:
    """source [B,S,D] -> its keys, normalized where the model says so (Henry et al. 2020), and values [B,S,K,H]."""
    k = linear(layer.key, "BSD,DKH->BSKH", source)
    return k if layer.key_norm is None else norm(config, layer.key_norm, k), linear(
        layer.value, "BSD,DKH->BSKH", source
    )
