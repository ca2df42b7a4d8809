"""Convolutions over windows of several sizes, with a ReLU (Kim 2014, eq. 2); with `head.pool=max` a CNN of texts."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.catalogue.mixers.convolution import prepare as tokens_of
from tfm.catalogue.mixers.padding import SegmentedContext, refuse_decoders
from tfm.catalogue.options.mixers.convolution import TextCnn
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score, refuse_scores
from tfm.ops import einsum
from tfm.params import bias_spec, weight_spec
from tfm.sharding import replicate_length


@struct.dataclass
class Filters:
    """For each size of windows the kernels [w,D,f] of its filters, and their biases [f]."""

    kernels: tuple[Array, ...]
    biases: tuple[Array, ...]


def specs(options: TextCnn, config: Config) -> Filters:
    """As many filters of every size of windows, or one more of the first ones; in all as many as the stream is wide."""
    counts = [len(part) for part in np.array_split(np.arange(config.width), len(options.sizes))]
    kernels = [
        weight_spec(config, "wDf", inputs=2, branch=True, w=size, f=filters)
        for size, filters in zip(options.sizes, counts, strict=True)
    ]
    return Filters(tuple(kernels), tuple(bias_spec(config, "f", f=filters) for filters in counts))


def prepare(call: LayerCall[TextCnn, None, None], context: AttentionContext) -> SegmentedContext:
    """The tokens of a pass. Raises ValueError for causality, and for masks of pairs."""
    refuse_decoders(call.options, context)
    return tokens_of(call, context)


def forward(
    call: LayerCall[TextCnn, Filters, SegmentedContext], x: Array, score: Score, state: None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]. Token t reads w tokens from t - w // 2 on; those beyond its text are zeros."""
    refuse_scores(call)
    (_, valid, segments), x = call.prepared, replicate_length(x)
    x = x if valid is None else jnp.where(valid[:, :, None], x, 0)
    features = []
    for kernel, bias in zip(call.params.kernels, call.params.biases, strict=True):
        size = kernel.shape[0]
        shifts = [_shifted(x, segments, shift - size // 2) for shift in range(size)]
        y = einsum("BTwD,wDf->BTf", jnp.stack(shifts, axis=2), kernel)
        features.append(jax.nn.relu(y + bias.astype(y.dtype)[None, None]))
    return jnp.concatenate(features, axis=-1), MixerOutput()


def _shifted(x: Array, segments: Array | None, shift: int) -> Array:
    """x [B,T,D] -> at place t what stands at t + shift, or zeros where that is beyond the text."""
    length = x.shape[1]
    places = jnp.arange(length) + shift
    inside = ((places >= 0) & (places < length))[None]
    if segments is not None:
        inside = inside & (segments == jnp.roll(segments, -shift, axis=1))
    return jnp.where(inside[:, :, None], jnp.roll(x, -shift, axis=1), 0)


MIXER = Mixer(specs, prepare, forward)
