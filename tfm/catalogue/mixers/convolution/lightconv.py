"""Lightweight convolution (Wu et al. 2019): one kernel a head, softmax-normalized."""

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
from tfm.catalogue.options.mixers.convolution import LightConv
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Mixer, MixerOutput, Score
from tfm.params import weight_spec
from tfm.sharding import unshard_fsdp


def specs(options: LightConv, config: Config) -> GatedConvolution:
    """A kernel [K,G,w]."""
    return convolution_specs(config, weight_spec(config, "KGw", inputs=2, w=options.window))


def forward(
    call: LayerCall[LightConv, GatedConvolution, SegmentedContext], x: Array, score: Score, state: Array | None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    kernel = unshard_fsdp(call.params.kernel)[None, None]
    return convolve(call, gated_inputs(call.params, x), kernel, state)


MIXER = Mixer(specs, prepare, forward, last_inputs)
