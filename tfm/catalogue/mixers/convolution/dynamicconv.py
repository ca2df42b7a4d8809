"""Dynamic convolution (Wu et al. 2019): every token computes a kernel for each head."""

import jax.numpy as jnp
from jax import Array

from tfm.catalogue.mixers.convolution import (
    GatedConvolution,
    convolution_specs,
    convolve,
    gated_inputs,
    last_inputs,
    prepare,
)
from tfm.catalogue.mixers.padding import SegmentedContext
from tfm.catalogue.options.mixers.convolution import DynamicConv
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Mixer, MixerOutput, Score
from tfm.ops import linear, linear_specs
from tfm.sharding import named_sharding, replicate_length, spec_of


def specs(options: DynamicConv, config: Config) -> GatedConvolution:
    """A map from the channels of a token to the kernels [n,w] of all n heads."""
    sizes = config.sizes
    kernel = linear_specs(config, "KGH", "nw", bias=False, n=sizes["K"] * sizes["G"], w=options.window)
    return convolution_specs(config, kernel)


def forward(
    call: LayerCall[DynamicConv, GatedConvolution, SegmentedContext], x: Array, score: Score, state: Array | None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    channels = gated_inputs(call.params, x)
    logits = replicate_length(linear(call.params.kernel, "BTKGH,KGHnw->BTnw", channels))
    shape = (*logits.shape[:2], *channels.shape[2:4], logits.shape[-1])
    sharding = named_sharding(logits, logits, spec_of(logits)[0], *(None,) * 4)
    return convolve(call, channels, jnp.reshape(logits, shape, out_sharding=sharding), state)


MIXER = Mixer(specs, prepare, forward, last_inputs)
