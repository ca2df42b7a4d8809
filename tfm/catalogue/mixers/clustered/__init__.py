"""Mixers that learn or draw which tokens attend to each other, and what those have in common that put tokens into
buckets."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.project import Attention
from tfm.catalogue.mixers.clustered.buckets import BucketedKeys, bucket_attention, cached_bucket_attention, sort_rounds
from tfm.catalogue.mixers.padding import valid_tokens_and_segments
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, MixerOutput, Score, refuse
from tfm.ops import Linear, linear_specs
from tfm.options.choices import Options
from tfm.sharding import replicate_length


@struct.dataclass
class SharedAttention:
    """Projections of attention whose queries are its keys too."""

    query: Linear
    value: Linear
    output: Linear

    @property
    def projections(self) -> Attention:
        """Projections of attention: those of queries serve keys too."""
        return Attention(self.query, self.query, self.value, self.output)


class TokenRows(NamedTuple):
    """bool [B or 1,T], which places hold tokens; and int32 [B or 1,T], the segment of each, or None."""

    valid: Array
    segments: Array | None


class ClusterContext(NamedTuple):
    """The context of a pass, and its tokens and segments."""

    context: AttentionContext
    rows: TokenRows


def shared_specs(config: Config, bias: bool = True) -> SharedAttention:
    """The spec tree, without biases where `bias` is false or the model has none; every query head has keys of its own,
    and groups of them share values."""
    bias = config.bias and bias
    return SharedAttention(
        query=linear_specs(config, "D", "KGH", bias),
        value=linear_specs(config, "D", "KH", bias, branch=True),
        output=linear_specs(config, "KGH", "D", bias, branch=True),
    )


def prepare(call: LayerCall[Options, None, None], context: AttentionContext) -> ClusterContext:
    """The tokens and segments of the pass. Raises ValueError for a mask of another kind."""
    valid, segments = valid_tokens_and_segments(call.options, context)
    valid = jnp.ones((1, context.positions.shape[1]), bool) if valid is None else valid
    return ClusterContext(context, TokenRows(valid, segments))


def positioned(call: LayerCall, score: Score, attention: SharedAttention, q: Array) -> Array:
    """q [B,T,K,G,H] with positions, [B,T,K,G,H]. Raises ValueError for positions that need scores of pairs."""
    q, _, bias = score(q, q, attention.projections)
    if bias is not None:
        refuse(call.options, "does not score all pairs of tokens", "try position=learned or position=rotary")
    return replicate_length(q)


def attend_in_buckets(
    call: LayerCall, projected: tuple[Array, Array, Array], buckets: Array, count: int, state: BucketedKeys | None
) -> tuple[Array, MixerOutput]:
    """q and k [B,T,K,G,H], v [B,T,K,H], and buckets [B,T,K,G,R] below `count` -> [B,T,K,G,H], and the output of the
    mixer. Padding has a bucket of its own."""
    context, rows = call.prepared
    q, k, v = (replicate_length(x) for x in projected)
    buckets = jnp.where(rows.valid[:, :, None, None, None], buckets, count)
    if state is None:
        rounds = sort_rounds(buckets, rows.segments, call.options.chunk, context.causal)
        heads = bucket_attention(q, k, v, rounds, call.config.attn_rate, call.key)
    else:
        heads = cached_bucket_attention(q, BucketedKeys(k, v, buckets), state, context.length, call.options.chunk)
    return heads, MixerOutput(BucketedKeys(k, v, buckets) if context.keep else None)


def unit_length(x: Array) -> Array:
    """x [...,H] -> float32 [...,H] of length 1; zeros stay zeros."""
    x = x.astype(jnp.float32)
    return x * jax.lax.rsqrt(jnp.maximum(jnp.square(x).sum(-1, keepdims=True), jnp.finfo(jnp.float32).tiny))
