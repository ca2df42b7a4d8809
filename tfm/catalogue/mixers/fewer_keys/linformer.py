"""Linformer (Wang et al. 2020, eq. 7): keys and values are projected along the length, so that scores are [T, rank]."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import attend
from tfm.attention.project import Attention, attention_specs, keys_values, merge_heads, queries
from tfm.catalogue.mixers.padding import refuse_decoders, valid_tokens
from tfm.catalogue.options.mixers.fewer_keys import Linformer
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score, refuse_bias
from tfm.params import ArraySpec, weight_spec
from tfm.sharding import replicate_length, unshard_fsdp


@struct.dataclass
class LinformerParams:
    """Projections to heads and back, and those of the length [P,r]; values have none of their own where they are
    shared."""

    attention: Attention
    keys: Array
    values: Array | None


def specs(options: Linformer, config: Config) -> LinformerParams:
    """The spec tree of one layer."""
    return LinformerParams(
        attention=attention_specs(config),
        keys=_length_spec(options, config),
        values=None if options.share else _length_spec(options, config),
    )


def prepare(call: LayerCall[Linformer, None, None], context: AttentionContext) -> Array | None:
    """Which places hold tokens. Raises ValueError for causality and for masks that ask about queries."""
    refuse_decoders(call.options, context)
    return valid_tokens(call.options, context)


def forward(
    call: LayerCall[Linformer, LinformerParams, Array | None], x: Array, score: Score, state: None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    layer, config = call.params, call.config
    k, v = keys_values(layer.attention, config, x)
    q, k, bias = score(queries(layer.attention, config, x), k, layer.attention)
    refuse_bias(call, bias)
    if call.prepared is not None:
        valid = call.prepared[:, :, None, None]
        k, v = (jnp.where(valid, replicate_length(rows), 0) for rows in (k, v))
    heads = linformer(q, k, v, layer.keys, layer.values, config.attn_rate_with(call.key), call.key)
    return merge_heads(layer.attention, heads), MixerOutput()


def linformer(
    q: Array, k: Array, v: Array, keys: Array, values: Array | None = None, rate: float = 0.0, key: Array | None = None
) -> Array:
    """q [B,T,K,G,H], k and v [B,S,K,H], projections of keys and values [P,r], P >= S -> [B,T,K,G,H]; softmax in
    float32.

    Rows of padding in k and v must be zeros. Without `values`, keys and values share a projection. `rate` and `key`
    drop attention weights.
    """
    return attend(q, _project(k, keys), _project(v, keys if values is None else values), None, None, rate, key)


def _project(x: Array, projection: Array) -> Array:
    """x [B,S,K,H] -> [B,r,K,H]."""
    rows = unshard_fsdp(projection)[: x.shape[1]].astype(x.dtype)
    return jnp.einsum("BSKH,Sr->BrKH", replicate_length(x), rows)


def _length_spec(options: Linformer, config: Config) -> ArraySpec:
    """A projection [P,r] with the variance of Xavier at a gain of 1/sqrt(2)."""

    def init(key, shape, sharding):
        scale = (shape[-2] + shape[-1]) ** -0.5
        return scale * jax.random.truncated_normal(key, -2, 2, shape, jnp.float32, out_sharding=sharding)

    return dataclasses.replace(weight_spec(config, "Pr", r=options.rank), init=init)


MIXER = Mixer(specs, prepare, forward)
