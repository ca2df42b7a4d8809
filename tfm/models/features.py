"""What heads read of an encoder: its last states, or some of all its layers."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.interfaces import AttentionContext
from tfm.layers.stack import by_layer, stack
from tfm.masks.mask import Mask
from tfm.models.encoder import Encoder, decoder, encoder, pass_context
from tfm.models.first_layers import first_layers
from tfm.ops import broadcast_param, split
from tfm.params import PyTree, bias_spec, constant_spec
from tfm.residuals import output_axis
from tfm.tables.inputs import embed


@struct.dataclass
class LayerMix:
    """The weights [l] of embeddings and layers before their softmax, and the factor [] of their sum (Peters et al.
    2018, eq. 1)."""

    weights: Array
    scale: Array


def mix_specs(config: Config) -> LayerMix | None:
    """The spec tree of `LayerMix`: all layers weigh the same at first. None for a head that reads no mix."""
    if config.head.features != "mix":
        return None
    return LayerMix(bias_spec(config, "l", l=config.layers + 1), constant_spec(config, "", 1.0))


def features_axis(config: Config) -> tuple[str, dict[str, Any]]:
    """The letter of the width of the features, and the size of one that is no shared letter."""
    if config.head.features != "concat":
        return output_axis(config)
    return "f", {"f": config.head.feature_layers * config.width}


def features(
    model: Encoder,
    mix: LayerMix | None,
    config: Config,
    inputs: PyTree,
    mask: Mask | None = None,
    types: Array | None = None,
    key: Array | None = None,
    positions: Array | None = None,
) -> Array:
    """What `config.input` reads -> what a head reads [B,T,D]; with features=concat, [B,T,f] of several layers.

    positions: int32 [B,T] in rows of several texts, 0..T-1 by default

    Last states are those of `encoder`, of `decoder` with head.causal; the others are those of Devlin et al. 2018, table
    7, and Peters et al. 2018, eq. 1. A key turns dropout on. Raises ValueError as `encoder` does.
    """
    kind, count = config.head.features, config.head.feature_layers
    if config.head.layer is not None:
        model, config = first_layers(model, config, config.head.layer)
    if kind == "last":
        if config.head.causal:
            return decoder(model, config, inputs, mask, positions, key)
        return encoder(model, config, inputs, mask, positions, types, key)
    embed_key, stack_key = split(key, 2)
    x = embed(model.embed, config, inputs, positions, None if config.head.causal else types, embed_key)
    context: AttentionContext = pass_context(x, mask, positions, config.head.causal)
    last, outputs = stack(model, config, x, dataclasses.replace(context, record_inputs=True), key=stack_key)
    states = [*(output.inputs for output in by_layer(config, outputs)), last]
    if kind == "concat":
        return jnp.concatenate(states[-count:], axis=-1)
    if mix is None:
        return sum(states[-count:][1:], states[-count])
    weights = jnp.unstack(jax.nn.softmax(mix.weights.astype(jnp.float32)))
    terms = [weight * state.astype(jnp.float32) for weight, state in zip(weights, states, strict=True)]
    mixed = sum(terms[1:], terms[0])
    return (broadcast_param(mix.scale, mixed) * mixed).astype(last.dtype)
