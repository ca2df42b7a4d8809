"""Mixers that read a window of tokens by a depth-wise convolution."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.catalogue.mixers.padding import SegmentedContext, valid_tokens_and_segments
from tfm.catalogue.options.mixers.convolution import ConvolutionOptions
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, MixerOutput, refuse_scores
from tfm.ops import Linear, dropout, linear, linear_specs
from tfm.params import PyTree
from tfm.scopes import SUMS
from tfm.sharding import replicate_length


@struct.dataclass
class GatedConvolution:
    """Maps of a token to channels and to their gates, the kernels, and the map back."""

    value: Linear
    gate: Linear
    kernel: PyTree
    output: Linear


def convolution_specs(config: Config, kernel: PyTree) -> GatedConvolution:
    """The spec tree of one layer, out of that of its kernels."""
    return GatedConvolution(
        value=linear_specs(config, "D", "KGH", branch=True),
        gate=linear_specs(config, "D", "KGH"),
        kernel=kernel,
        output=linear_specs(config, "KGH", "D", branch=True),
    )


def prepare(call: LayerCall, context: AttentionContext) -> SegmentedContext:
    """The tokens of a pass. Raises ValueError for masks of pairs, such as windows."""
    valid, segments = valid_tokens_and_segments(call.options, context)
    return SegmentedContext(context, valid, None if segments is None else replicate_length(segments))


def gated_inputs(layer: GatedConvolution, x: Array) -> Array:
    """x [B,T,D] -> [B,T,K,G,H]: channels times the sigmoid of their gates (Dauphin et al. 2017, eq. 1)."""
    gate = linear(layer.gate, "BTD,DKGH->BTKGH", x)
    return linear(layer.value, "BTD,DKGH->BTKGH", x) * jax.nn.sigmoid(gate)


def convolve(call: LayerCall, x: Array, logits: Array, state: Array | None) -> tuple[Array, MixerOutput]:
    """Channels x [B,T,K,G,H], kernels before their softmax [B or 1, T or 1, K,G,w] -> [B,T,D], and the last inputs.

    The state [B,w-1,K,G,H] is the channels of the tokens before x; padding is zeros. Dropout leaves out weights of the
    kernels (DropConnect, Wan et al. 2013).
    """
    refuse_scores(call)
    (context, valid, segments), config, window = call.prepared, call.config, logits.shape[-1]
    x = replicate_length(x)
    if valid is not None:
        x = jnp.where(valid[:, :, None, None, None], x, 0)
    before = window - 1 if context.causal else window // 2
    if state is None:
        padded = jnp.pad(x, ((0, 0), (before, window - 1 - before), (0, 0), (0, 0), (0, 0)))
    else:
        padded = jnp.concatenate([state, x], axis=1)
    weights = dropout(jax.nn.softmax(logits.astype(jnp.float32), axis=-1), config.attn_rate, call.key)
    heads = window_sum(padded, weights, segments, before)
    output = MixerOutput(state=padded[:, x.shape[1] :] if context.keep else None)
    return linear(call.params.output, "BTKGH,KGHD->BTD", heads), output


@jax.named_scope(SUMS)
@partial(jax.checkpoint, static_argnums=(3,))  # the backward pass reads x, not each of its shifts
def window_sum(x: Array, weights: Array, segments: Array | None, before: int) -> Array:
    """x [B,T+w-1,K,G,H], float32 weights [B or 1, T or 1, K,G,w] -> [B,T,K,G,H], a sum in float32.

    Token t reads the w tokens from t - `before` on, those of its own segment [B or 1,T].
    """
    window = weights.shape[-1]
    length = x.shape[1] - window + 1
    total = jnp.zeros((), jnp.float32)
    for shift in range(window):
        weight = weights[..., shift, None]
        if segments is not None:
            is_same = segments == jnp.roll(segments, before - shift, axis=1)
            weight = jnp.where(is_same[:, :, None, None, None], weight, 0)
        total = total + weight * x[:, shift : shift + length].astype(jnp.float32)
    return total.astype(x.dtype)


def last_inputs(options: ConvolutionOptions, config: Config, output: Array, slots: int) -> Array:
    """The state after a prefill: the last channels [R,B,w-1,K,G,H], for any number of slots."""
    return output
