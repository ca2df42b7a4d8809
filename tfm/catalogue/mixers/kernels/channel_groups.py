"""Channel group attention (DaViT: Ding et al. 2022, section 3.2): channels attend to channels of their group, in time
linear in the length."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from tfm.attention.project import Attention, keys_values, merge_heads, queries
from tfm.catalogue.mixers.kernels.channels import attend_channels
from tfm.catalogue.mixers.padding import refuse_decoders, valid_tokens
from tfm.catalogue.options.mixers.kernels import ChannelGroups
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score, refuse_scores
from tfm.ops import linear_specs
from tfm.sharding import replicate_length


def specs(options: ChannelGroups, config: Config) -> Attention:
    """Projections to groups and back."""
    groups = options.groups or config.heads
    sizes: dict[str, Any] = {"K": groups, "G": 1, "H": config.width // groups}
    return Attention(
        query=linear_specs(config, "D", "KGH", **sizes),
        key=linear_specs(config, "D", "KH", **sizes),
        value=linear_specs(config, "D", "KH", branch=True, **sizes),
        output=linear_specs(config, "KGH", "D", branch=True, **sizes),
    )


def prepare(call: LayerCall[ChannelGroups, None, None], context: AttentionContext) -> Array | None:
    """Which places hold tokens. Raises ValueError for causality and for masks that ask about queries."""
    refuse_decoders(call.options, context)
    return valid_tokens(call.options, context)


def forward(
    call: LayerCall[ChannelGroups, Attention, Array | None], x: Array, score: Score, state: None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]; products and softmax in float32."""
    refuse_scores(call)
    layer, config = call.params, call.config
    k, v = keys_values(layer, config, x)
    q, k, v = (replicate_length(rows) for rows in (queries(layer, config, x), k, v))
    scale: float | Array = k.shape[-1] ** -0.5 if call.options.scale == "channels" else k.shape[1] ** -0.5
    if call.prepared is not None:
        valid = call.prepared[:, :, None, None]
        k = jnp.where(valid, k, 0)
        if call.options.scale == "tokens":
            scale = jax.lax.rsqrt(jnp.maximum(valid.astype(jnp.float32).sum(1), 1))[..., None, None]
    heads = attend_channels(q, k, v, scale, config.attn_rate_with(call.key), call.key)
    return merge_heads(layer, heads), MixerOutput()


MIXER = Mixer(specs, prepare, forward)
