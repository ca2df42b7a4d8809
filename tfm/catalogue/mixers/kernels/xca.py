"""Cross-covariance attention (El-Nouby et al. 2021, eq. 3): channels attend to channels, in time linear in the length.

Weights [H,H] of a head are products of whole columns of queries and keys, each of length 1. The local patch interaction
of the paper's blocks is no part of it.
"""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.project import Attention, attention_specs, keys_values, merge_heads, queries
from tfm.catalogue.mixers.kernels.channels import attend_channels
from tfm.catalogue.mixers.padding import refuse_decoders, valid_tokens
from tfm.catalogue.options.mixers.kernels import CrossCovariance
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score, refuse_scores
from tfm.ops import unit_vectors
from tfm.params import scale_spec
from tfm.sharding import replicate_length


@struct.dataclass
class CrossCovarianceParams:
    """Projections to heads and back, and what the products of a head are multiplied by [K,G]."""

    attention: Attention
    temperature: Array


def specs(options: CrossCovariance, config: Config) -> CrossCovarianceParams:
    """The spec tree of one layer."""
    return CrossCovarianceParams(attention_specs(config), scale_spec(config, "KG"))


def prepare(call: LayerCall[CrossCovariance, None, None], context: AttentionContext) -> Array | None:
    """Which places hold tokens. Raises ValueError for causality and for masks that ask about queries."""
    refuse_decoders(call.options, context)
    return valid_tokens(call.options, context)


def forward(
    call: LayerCall[CrossCovariance, CrossCovarianceParams, Array | None], x: Array, score: Score, state: None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]; products and softmax in float32."""
    refuse_scores(call)
    layer, config = call.params, call.config
    k, v = keys_values(layer.attention, config, x)
    q, k, v = (replicate_length(rows) for rows in (queries(layer.attention, config, x), k, v))
    if call.prepared is not None:
        valid = call.prepared[:, :, None, None]
        q, k = jnp.where(valid[..., None], q, 0), jnp.where(valid, k, 0)
    scale = layer.temperature.astype(jnp.float32)[None, :, :, None, None]
    heads = attend_channels(unit_vectors(q, 1), unit_vectors(k, 1), v, scale, config.attn_rate_with(call.key), call.key)
    return merge_heads(layer.attention, heads), MixerOutput()


MIXER = Mixer(specs, prepare, forward)
