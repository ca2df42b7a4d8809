"""Performer (Choromanski et al. 2021): softmax attention by positive random features, in time linear in the length.

With the rows w of a random matrix P, exp(q k) is the mean over w of phi(q) phi(k), phi(x) = exp(w x - |x|^2 / 2) (lemma
1).
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import NamedSharding, reshard

from tfm.attention.project import Attention, attention_specs
from tfm.catalogue.mixers.kernels import FeatureSums, attend_by_features, prepare, start
from tfm.catalogue.mixers.padding import SegmentedContext
from tfm.catalogue.options.mixers.kernels import Performer
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Mixer, MixerOutput, Score
from tfm.params import fixed_spec


@struct.dataclass
class PerformerParams:
    """Projections to heads and back, and the random matrix [m,H], which is not trained."""

    attention: Attention
    features: Array


def specs(options: Performer, config: Config) -> PerformerParams:
    """The spec tree of one layer."""
    features = fixed_spec(config, "mH", orthogonal_features, options.redraw, m=options.features)
    return PerformerParams(attention_specs(config), features)


def orthogonal_features(key: Array, shape: tuple[int, ...], sharding: NamedSharding | None) -> Array:
    """[...,m,H]: rows that are orthogonal in blocks of H, as long as Gaussian rows are (section 2.4)."""
    *stack, features, size = shape
    blocks_key, length_key = jax.random.split(key)
    blocks = jax.random.normal(blocks_key, (*stack, -(-features // size), size, size))
    # One by one: on a CPU, jaxlib 0.10 hands several matrices to the threads of its pool and waits for them. Where as
    # many devices as threads do that at once, nobody is left to work, and they wait forever.
    matrices = jax.lax.map(lambda block: jnp.linalg.qr(block)[0], blocks.reshape(-1, size, size))
    rows = matrices.reshape(*stack, -1, size)[..., :features, :]
    lengths = jnp.linalg.norm(jax.random.normal(length_key, shape), axis=-1, keepdims=True)
    return rows * lengths if sharding is None else reshard(rows * lengths, sharding)


def forward(
    call: LayerCall[Performer, PerformerParams, SegmentedContext], x: Array, score: Score, state: FeatureSums | None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    features = jax.lax.stop_gradient(call.params.features).astype(jnp.float32)
    return attend_by_features(call, call.params.attention, x, score, state, partial(log_features, features=features))


def log_features(x: Array, features: Array) -> Array:
    """x [B,T,...,H], features [m,H] -> float32 [B,T,...,m]: w x - |x|^2 / 2 of x divided by the fourth root of H."""
    x = x.astype(jnp.float32) * x.shape[-1] ** -0.25
    return jnp.einsum("...H,mH->...m", x, features) - 0.5 * jnp.square(x).sum(-1, keepdims=True)


MIXER = Mixer(specs, prepare, forward, start)
