"""Synthesizer (Tay et al. 2021): attention weights without products of queries and keys.

The scores of a query i and a key j are, before their softmax,

    dense     (relu(q_i) W)_j
    random    R_ij
    dot       q_i k_j / sqrt(H)

with R and W for each head; several of them are summed with trained weights that sum to 1. Factorized, R is a product of
two matrices of `rank` columns, and a row of the dense scores is the product of two short rows: the elements of the
first are repeated, and the second is tiled (section 3.1).
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import apply_weights, biased_scores
from tfm.attention.bias import ScoreBias
from tfm.catalogue.mixers.static import Pairs, pairs_of, take_last
from tfm.catalogue.mixers.token_states import move_slots, pad_slots, write_slots
from tfm.catalogue.options.mixers.static import Synthesizer
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score, refuse_scores
from tfm.masks.mask import MASK_VALUE
from tfm.ops import Linear, dropout, einsum, linear, linear_specs, lookup
from tfm.params import ArraySpec, bias_spec, weight_spec
from tfm.sharding import replicate_length, unshard_fsdp


@struct.dataclass
class SynthesizerParams:
    """Projections to heads and back, and what scores are made of; None where no term needs it.

    dense: (W [K,G,H,p],), or (its factors [K,G,H,a] and [K,G,H,b],), a b at least P
    random: (R [P,K,G,p],), or its factors [P,K,G,r] and [P,K,G,r]
    mixture: [m] for m terms; their softmax is the weights of the terms
    """

    query: Linear | None
    key: Linear | None
    value: Linear
    output: Linear
    dense: tuple[Array, ...]
    random: tuple[Array, ...]
    mixture: Array | None


@struct.dataclass
class SynthesizerState:
    """Keys, where the scores read them, and values [B,slots,K,H]."""

    keys: Any
    values: Array


def specs(options: Synthesizer, config: Config) -> SynthesizerParams:
    """The spec tree of one layer."""
    terms, length = options.terms.split("_"), config.sizes["P"]
    widths = factors(length) if options.factorized else (length,)
    ranks = (options.rank,) * 2 if options.factorized else (length,)
    return SynthesizerParams(
        query=linear_specs(config, "D", "KGH") if set(terms) & {"dense", "dot"} else None,
        key=linear_specs(config, "D", "KH") if "dot" in terms else None,
        value=linear_specs(config, "D", "KH", branch=True),
        output=linear_specs(config, "KGH", "D", branch=True),
        dense=tuple(weight_spec(config, "KGHp", inputs=3, p=size) for size in widths if "dense" in terms),
        random=tuple(_table(options, config, size) for size in ranks if "random" in terms),
        mixture=bias_spec(config, "m", m=len(terms)) if len(terms) > 1 else None,
    )


def _table(options: Synthesizer, config: Config, size: int) -> ArraySpec:
    """The table of random scores, or a factor of it."""
    spec = weight_spec(config, "PKGp", p=size)
    if not options.fixed:
        return spec

    def normal(key, shape, sharding):
        return jax.random.normal(key, shape, jnp.float32, out_sharding=sharding)

    return dataclasses.replace(spec, init=normal, trained=False, decay=False)


def factors(length: int) -> tuple[int, int]:
    """The lengths of two rows whose products, pair by pair, are at least `length`."""
    first = math.isqrt(length - 1) + 1
    return first, -(-length // first)


def prepare(call: LayerCall[Synthesizer, None, None], context: AttentionContext) -> AttentionContext:
    """The context."""
    return context


def forward(
    call: LayerCall[Synthesizer, SynthesizerParams, AttentionContext],
    x: Array,
    score: Score,
    state: SynthesizerState | None,
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    layer, context, rate = call.params, call.prepared, call.config.attn_rate
    slots = 0 if state is None else state.values.shape[1]
    pairs = pairs_of(context, slots)
    q = project(layer.query, "BTD,DKGH->BTKGH", x)
    k, v = project(layer.key, "BSD,DKH->BSKH", x), project(layer.value, "BSD,DKH->BSKH", x)
    terms: dict[str, Array] = {}
    bias = None
    if layer.dense:
        terms["dense"] = dense_scores(layer.dense, jax.nn.relu(q), pairs, slots + x.shape[1])
    if layer.random:
        terms["random"] = random_scores(layer.random, pairs, x.shape[1])
    if k is None:
        refuse_scores(call)
    else:
        q, k, bias = score(q, k, layer)
        terms["dot"] = biased_scores(q, k, bias, pairs.i, pairs.i)
        if state is not None:
            old = biased_scores(
                q, state.keys, None if bias is None else bias.for_keys(state.keys), pairs.i, pairs.j[:, :slots]
            )
            terms["dot"] = jnp.concatenate([old, terms["dot"]], axis=-1)
    weights = mixed_weights(layer.mixture, [terms[name] for name in call.options.terms.split("_")], pairs)
    if context.record or call.key is not None or bias is not None:
        weights = per_row(weights, v)
    heads = sum_values(dropout(weights, rate, call.key), v, bias, pairs, state)
    output = MixerOutput(SynthesizerState(k, v) if context.keep else None, weights if context.record else None)
    return linear(layer.output, "BTKGH,KGHD->BTD", heads), output


def project(layer: Linear | None, equation: str, x: Array) -> Any:
    """x [B,T,D] -> its projection, with its length replicated; None where there is no projection."""
    return None if layer is None else replicate_length(linear(layer, equation, x))


def sum_values(weights: Array, v: Array, bias: ScoreBias | None, pairs: Pairs, state: SynthesizerState | None) -> Array:
    """weights [B or 1,K,G,T,S], new values [B,T,K,H] and those of a state -> [B,T,K,G,H]; plus the values of a bias."""
    if state is None:
        return apply_weights(weights, v, bias, pairs.i, pairs.i) if len(weights) == len(v) else shared_sum(weights, v)
    slots = state.values.shape[1]
    old, recent = jnp.split(per_row(weights, v), [slots], axis=-1)
    state_bias = None if bias is None or state.keys is None else bias.for_keys(state.keys)
    heads = apply_weights(old, state.values, state_bias, pairs.i, pairs.j[:, :slots])
    return heads + apply_weights(recent, v, bias, pairs.i, pairs.i)


def dense_scores(kernels: tuple[Array, ...], hidden: Array, pairs: Pairs, keys: int) -> Array:
    """hidden [B,T,K,G,H] -> float32 [B,K,G,T,S]: rows that each token computes."""
    if pairs.keys is None and len(kernels) == 1:
        return einsum("BTKGH,KGHp->BKGTp", hidden, kernels[0][..., :keys], jnp.float32)
    rows = [einsum("BTKGH,KGHp->BKGTp", hidden, kernel, jnp.float32) for kernel in kernels]
    if len(rows) == 1:
        return take_last(rows[0], pairs.keys)
    repeated, tiled = rows
    products = (repeated[..., None] * tiled[..., None, :]).reshape(*repeated.shape[:-1], -1)
    return products[..., :keys] if pairs.keys is None else take_last(products, pairs.keys)


def random_scores(tables: tuple[Array, ...], pairs: Pairs, length: int) -> Array:
    """float32 [B or 1,K,G,T,S]: scores of a trained table."""
    rows, *columns = (unshard_fsdp(table).astype(jnp.float32) for table in tables)
    if pairs.queries is None:
        if columns:
            return jnp.einsum("TKGr,SKGr->KGTS", rows[:length], columns[0][:length])[None]
        return jnp.moveaxis(rows[:length, ..., :length], 0, 2)[None]
    table = jnp.einsum("TKGr,SKGr->TKGS", rows, columns[0]) if columns else rows
    return take_last(jnp.moveaxis(lookup(table, pairs.queries), 1, 3), pairs.keys)


def mixed_weights(mixture: Array | None, terms: list[Array], pairs: Pairs) -> Array:
    """Scores [B or 1,K,G,T,S] of all terms -> float32 attention weights [B or 1,K,G,T,S]."""
    scores = terms[0]
    if mixture is not None:
        shares = jax.nn.softmax(mixture.astype(jnp.float32))
        scores = sum((share * term for share, term in zip(shares, terms, strict=True)), jnp.float32(0))
    if pairs.allowed is not None:
        scores = jnp.where(pairs.allowed[:, None, None], scores, MASK_VALUE)
    return jax.nn.softmax(scores, axis=-1)


def per_row(weights: Array, v: Array) -> Array:
    """weights [B or 1,K,G,T,S] -> those of every row of v [B,S,K,H]; where the batch is sharded, they are too."""
    zeros = jnp.zeros_like(v, weights.dtype).sum((1, 2, 3))
    return weights + jnp.expand_dims(zeros, (1, 2, 3, 4))


def shared_sum(weights: Array, v: Array) -> Array:
    """weights [1,K,G,T,S] of all rows, v [B,S,K,H] -> [B,T,K,G,H]."""
    return jnp.einsum("KGTS,BSKH->BTKGH", weights[0].astype(v.dtype), v)


MIXER = Mixer(specs, prepare, forward, pad_slots, write_slots, move_slots)
