"""gMLP (Liu et al. 2021, section 2): one half of the channels gates the other, after a map along the length.

    z, g = act(x U), split    y = (z * (W norm(g) + b)) V

W [P,P] and b [P] mix the tokens of all channels alike; in a decoder W is a lower triangle.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.catalogue.mixers.static import Pairs, pairs_of, take_last
from tfm.catalogue.mixers.token_states import move_slots, pad_slots, write_slots
from tfm.catalogue.options.mixers.static import Gmlp
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score, refuse_scores
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import Linear, activation, linear, linear_specs, lookup
from tfm.params import scale_spec, weight_spec
from tfm.sharding import replicate_length

# Entries of W start below this, divided by the length; biases start at 1, so that gates do nothing at first.
NEARLY_ZERO = 1e-3


@struct.dataclass
class SpatialGate:
    """Maps to the halves z and g [D,F], the norm of g, the map along the length [P,p] and its bias [P], and the map
    back."""

    value: Linear
    gate: Linear
    norm: Norm
    places: Array
    bias: Array
    output: Linear


def specs(options: Gmlp, config: Config) -> SpatialGate:
    """The spec tree of one layer."""
    half = replace(config, ffn=options.channels(config) // 2)

    def init(key, shape, sharding):
        limit = NEARLY_ZERO / shape[-1]
        return jax.random.uniform(key, shape, jnp.float32, -limit, limit, out_sharding=sharding)

    return SpatialGate(
        value=linear_specs(half, "D", "F", branch=True),
        gate=linear_specs(half, "D", "F"),
        norm=norm_specs(half, "F"),
        places=replace(weight_spec(config, "Pp", p=config.sizes["P"]), init=init),
        bias=scale_spec(config, "P"),
        output=linear_specs(half, "F", "D", branch=True),
    )


def prepare(call: LayerCall[Gmlp, None, None], context: AttentionContext) -> AttentionContext:
    """The context."""
    return context


def forward(
    call: LayerCall[Gmlp, SpatialGate, AttentionContext], x: Array, score: Score, state: Array | None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]; a decode state holds norm(g) of all tokens, [B,slots,F]."""
    refuse_scores(call)
    layer, config, context = call.params, call.config, call.prepared
    act = activation(config)
    value = act(linear(layer.value, "BTD,DF->BTF", x))
    gate = act(linear(layer.gate, "BTD,DF->BTF", x))
    gate = replicate_length(norm(config, layer.norm, gate))
    rows = gate if state is None else jnp.concatenate([state, gate], axis=1)
    pairs = pairs_of(context, 0 if state is None else state.shape[1])
    weights, bias = spatial_weights(layer, pairs, gate.shape[1])
    mixed = mix_places(weights.astype(rows.dtype), rows) + bias[..., None].astype(rows.dtype)
    y = linear(layer.output, "BTF,FD->BTD", replicate_length(value) * mixed)
    return y, MixerOutput(state=gate if context.keep else None)


def spatial_weights(layer: SpatialGate, pairs: Pairs, length: int) -> tuple[Array, Array]:
    """The map along the length of these pairs [B or 1,T,S], 0 where a pair is not allowed, and its bias [B or 1,T]."""
    if pairs.queries is None:
        weights, bias = layer.places[None, :length, :length], layer.bias[None, :length]
    else:
        weights = take_last(lookup(layer.places, pairs.queries), pairs.keys)
        bias = lookup(layer.bias, pairs.queries)
    return weights if pairs.allowed is None else jnp.where(pairs.allowed, weights, 0), bias


def mix_places(weights: Array, rows: Array) -> Array:
    """weights [B or 1,T,S], rows [B,S,F] -> [B,T,F]; weights of all rows are one matrix."""
    if len(weights) == 1:
        return jnp.einsum("TS,BSF->BTF", weights[0], rows)
    return jnp.einsum("BTS,BSF->BTF", weights, rows)


MIXER = Mixer(specs, prepare, forward, pad_slots, write_slots, move_slots)
