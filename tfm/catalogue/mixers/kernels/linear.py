"""Linear attention (Katharopoulos et al. 2020): weights are products of phi(x) = elu(x) + 1, in time linear in the
length."""

import jax.numpy as jnp
from jax import Array

from tfm.attention.project import Attention, attention_specs
from tfm.catalogue.mixers.kernels import FeatureSums, attend_by_features, prepare, start
from tfm.catalogue.mixers.padding import SegmentedContext
from tfm.catalogue.options.mixers.kernels import LinearAttention
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Mixer, MixerOutput, Score


def specs(options: LinearAttention, config: Config) -> Attention:
    """Projections to heads and back."""
    return attention_specs(config)


def forward(
    call: LayerCall[LinearAttention, Attention, SegmentedContext], x: Array, score: Score, state: FeatureSums | None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    return attend_by_features(call, call.params, x, score, state, log_features)


def log_features(x: Array) -> Array:
    """[...,H] -> float32 [...,H]: the logarithm of elu(x) + 1 (eq. 7), which is exp(x) below 0 and 1 + x above."""
    x = x.astype(jnp.float32)
    return jnp.minimum(x, 0) + jnp.log1p(jnp.maximum(x, 0))


MIXER = Mixer(specs, prepare, forward, start)
