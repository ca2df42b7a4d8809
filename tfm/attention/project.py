"""The projections of attention: from a text to queries, keys and values, and back."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import Heads
from tfm.attention.bias import ScoreBias
from tfm.attention.kernels.choice import attention
from tfm.attention.scores import score_queries
from tfm.config.mixers import Softmax
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, MixerOutput, Score, refuse
from tfm.masks.mask import Mask
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import Linear, linear, linear_specs


@struct.dataclass
class Attention:
    """Projections of multi-head attention; with fewer key/value heads than heads it is grouped-query attention.

    Kernels are [D,K,G,H] for queries, [D,K,H] for keys and values, [K,G,H,D] for the output.
    None where a model has none: the norms of queries and keys, and what its score function and its pattern train.
    """

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    score: Any = None
    pattern: Any = None


class SoftmaxPass(NamedTuple):
    """What all layers of softmax attention of a kind share in a pass.

    mask: of the pattern and of the pass; None: every key
    reach: tokens before a query that the pattern reaches at most; None: all
    path: (call, heads) -> [B,T,K,G,H] and a `MixerOutput`
    bias, forward: those of the `Pattern`
    """

    context: AttentionContext
    mask: Mask | None
    reach: int | None
    path: Callable[["SoftmaxCall", Heads], tuple[Array, MixerOutput]]
    bias: Callable[..., ScoreBias | None] | None = None
    forward: Callable[["SoftmaxCall", Array, Score], tuple[Array, MixerOutput]] | None = None


SoftmaxCall = LayerCall[Softmax, Attention, SoftmaxPass]


def attention_specs(config: Config, qk_norm: bool = False, qkv_bias: bool | None = None) -> Attention:
    """Projections to heads, with biases as `qkv_bias` says or else the model, and back."""
    head_norm = norm_specs(config, "H") if qk_norm else None
    bias = config.bias if qkv_bias is None else qkv_bias
    return Attention(
        query=linear_specs(config, "D", "KGH", bias),
        key=linear_specs(config, "D", "KH", bias),
        value=linear_specs(config, "D", "KH", bias, branch=True),
        output=linear_specs(config, "KGH", "D", branch=True),
        query_norm=head_norm,
        key_norm=head_norm,
    )


def project(call: SoftmaxCall, x: Array) -> tuple[Array, Array, Array]:
    """x [B,T,D] -> queries [B,T,K,G,H] whose scaled products with keys are the scores, keys and values [B,T,K,H]."""
    compared, valued = halves(x) if call.options.split_states else (x, x)
    q = queries(call.params, call.config, compared)
    if call.options.score != "scaled_dot":
        q = score_queries(call.options.score, call.params.score, q)
    return q, *keys_values(call.params, call.config, compared, valued)


def project_keys(call: SoftmaxCall, x: Array) -> tuple[Array, Array]:
    """x [B,S,D] -> keys and values [B,S,K,H]."""
    return keys_values(call.params, call.config, *(halves(x) if call.options.split_states else (x, x)))


def halves(x: Array) -> tuple[Array, Array]:
    """x [B,T,D] -> what makes queries and keys, and what makes values, both [B,T,D/2]."""
    compared, valued = jnp.split(x, 2, axis=-1)
    return compared, valued


def with_positions(call: SoftmaxCall, q: Array, k: Array, v: Array, score: Score) -> Heads:
    """Queries [B,T,K,G,H], keys and values [B,S,K,H] with positions and with the mask and the bias of their pattern.

    Raises VariantError for positions that multiply queries and keys whose scores are no products.
    """
    prepared = call.prepared
    positioned_q, positioned_k, bias = score(q, k, call.params)
    if call.options.score == "additive" and (positioned_q is not q or positioned_k is not k):
        refuse(call.options, "with score=additive multiplies no queries and keys", "try position=learned")
    if prepared.bias is not None:
        pattern_call = LayerCall(call.options.pattern, call.config, call.params.pattern, prepared.context, call.key)
        bias = prepared.bias(pattern_call, q, bias)
    return Heads(positioned_q, positioned_k, v, prepared.mask, bias)


def queries(layer: Attention, config: Config, x: Array) -> Array:
    """x [B,T,D] -> [B,T,K,G,H], normalized where the model says so (Henry et al. 2020)."""
    q = linear(layer.query, "BTD,DKGH->BTKGH", x)
    return q if layer.query_norm is None else norm(config, layer.query_norm, q)


def keys_values(
    layer: Attention, config: Config, source: Array, value_source: Array | None = None
) -> tuple[Array, Array]:
    """source [B,S,D] -> its keys, normalized where the model says so, and its values [B,S,K,H], or those of
    `value_source`."""
    k = linear(layer.key, "BSD,DKH->BSKH", source)
    k = k if layer.key_norm is None else norm(config, layer.key_norm, k)
    return k, linear(layer.value, "BSD,DKH->BSKH", source if value_source is None else value_source)


def swap_heads(rows: Array) -> Array:
    """Keys or values [...,S,K,H] -> [...,K,S,H], and back."""
    return jnp.swapaxes(rows, -3, -2)


def merge_heads(layer: Attention, heads: Array) -> Array:
    """heads [B,T,K,G,H] -> [B,T,D]."""
    return linear(layer.output, "BTKGH,KGHD->BTD", heads)


def multi_head_attention(
    layer: Attention,
    config: Config,
    x: Array,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    key: Array | None = None,
    memory: Array | None = None,
) -> Array:
    """x [B,T,D] -> [B,T,D]: multi-head attention over x, or over memory [B,S,D] (Vaswani et al. 2017, section 3.2.2).

    A key drops attention weights.
    """
    k, v = keys_values(layer, config, x if memory is None else memory)
    heads = Heads(queries(layer, config, x), k, v, mask, bias)
    return merge_heads(layer, attention(heads, config.kernel, config.attn_rate_with(key), key))
