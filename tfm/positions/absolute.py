"""Where a token stands: embeddings added to the token's, rotations of queries and keys, and biases added to attention scores."""

import dataclasses
import math

import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import reshard

from tfm import params
from tfm.attention.bias import ScoreBias
from tfm.config.model import Config
from tfm.ops import lookup


def position_specs(config: Config):
    """The table [P,U] of learned positions, or [R,K,G] of buckets of distances; None for a variant without parameters.

    It starts as sinusoids of the size of other weights, not as noise: relative places are then there to be found from the first step.
    bert-tiny after 1000 steps on the built-in text: accuracy 0.161 against 0.155, validation loss 5.60 against 5.65.
    """
    if config.position == "buckets":
        return params.weight_spec(config, "RKG")
    if config.position != "learned":
        return None

    def init(key, shape, sharding):
        waves = config.init_std * 2**0.5 * sinusoidal(None, jnp.arange(shape[0])[None], shape[1])[0]
        return waves if sharding is None else reshard(waves, sharding)

    return dataclasses.replace(params.weight_spec(config, "P" + config.embed_axis), init=init)


def learned(table: Array | None, positions: Array, width: int) -> Array:
    """positions [B,T] -> rows [B,T,D] of a trained table (Devlin et al. 2018)."""
    assert table is not None, "learned positions need their table"
    return lookup(table, positions)


def sinusoidal(table: Array | None, positions: Array, width: int) -> Array:
    """positions [B,T] -> [B,T,D]: sines in even columns and cosines in odd ones, of wavelengths from 2 pi to 10,000 * 2 pi, in float32
    (Vaswani et al. 2017, section 3.5)."""
    waves = jnp.stack(_waves(positions, width), axis=-1)
    return waves.reshape(*positions.shape, -1)[..., :width]


def sinusoidal_halves(table: Array | None, positions: Array, width: int) -> Array:
    """The columns of `sinusoidal`, all sines before all cosines."""
    return jnp.concatenate(_waves(positions, width), axis=-1)[..., :width]


def _waves(positions: Array, width: int) -> tuple[Array, Array]:
    """Sines and cosines, float32 [B,T,D/2] each."""
    wavelengths = 10_000.0 ** (jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angles = positions[..., None].astype(jnp.float32) / wavelengths[None, None]
    return jnp.sin(angles), jnp.cos(angles)


def no_positions(table: Array | None, positions: Array, width: int) -> Array:
    """Zeros [B,T,D], for models that place tokens in attention or not at all."""
    return jnp.zeros((*positions.shape, width), jnp.float32)


# Rotary positions and buckets of distances are no part of the embedding.
POSITIONS = {
    "learned": learned,
    "sinusoidal": sinusoidal,
    "sinusoidal_halves": sinusoidal_halves,
    "rotary": no_positions,
    "buckets": no_positions,
    "none": no_positions,
}


def rotary(config: Config, positions: Array) -> Array | None:
    """positions [B,T] -> float32 angles [B,T,H/2], H the turned part of a head, that `rotate` turns queries and keys by; None for other
    variants.

    Pair n of a head turns by `config.rotary_base` ** (-2 n / H) a position (Su et al. 2021, eq. 15), slower where long wavelengths are
    stretched (Chen et al. 2023, eq. 4: all of them; Grattafiori et al. 2024, section 3.4.2).
    """
    if config.position != "rotary":
        return None
    size = config.turned
    speeds = config.rotary_base ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    return positions[..., None].astype(jnp.float32) * _stretched(config, speeds)[None, None]


def _stretched(config: Config, speeds: Array) -> Array:
    """Radians a position, of pairs whose wavelengths are stretched: the long ones wholly, those of middle length in part."""
    if config.rotary_stretch == 1:
        return speeds
    if not config.rotary_long:
        return speeds / config.rotary_stretch
    slow, fast = 1 / config.rotary_long, 1 / config.rotary_short
    kept = jnp.clip((speeds / (2 * math.pi) - slow) / (fast - slow), 0, 1)
    return kept * speeds + (1 - kept) * speeds / config.rotary_stretch


def rotate(x: Array, angles: Array | None) -> Array:
    """x [B,T,...,H], angles [B,T,R/2] -> x with the pairs (n, n + R/2) of its last axis turned, where R < H the rest as it is; computed in
    float32.

    The score of two tokens then depends on the distance between them alone (Su et al. 2021, eq. 16; pairs as in GPT-NeoX and Llama).
    """
    if angles is None:
        return x
    angles = jnp.expand_dims(angles, range(2, x.ndim - 1))
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    half = angles.shape[-1]
    one, two, rest = jnp.split(x.astype(jnp.float32), (half, 2 * half), axis=-1)
    return jnp.concatenate([one * cos - two * sin, two * cos + one * sin, rest], axis=-1).astype(x.dtype)


@struct.dataclass
class Alibi(ScoreBias):
    """See `alibi`."""

    kv_heads: int = struct.field(pytree_node=False)
    groups: int = struct.field(pytree_node=False)

    def __call__(self, i, j):  # noqa: D102
        heads = self.kv_heads * self.groups
        slopes = 2.0 ** (-8 / heads * jnp.arange(1, heads + 1, dtype=jnp.float32)).reshape(
            1, self.kv_heads, self.groups, 1, 1
        )
        distance = jnp.abs(j[:, None, :] - i[:, :, None]).astype(jnp.float32)
        return -slopes * distance[:, None, None]


def alibi(heads: int, kv_heads: int | None = None) -> ScoreBias:
    """Scores fall linearly with distance, each head at its own slope 2^(-8 n / heads) (Press et al. 2022), on both sides."""
    return Alibi(kv_heads or heads, heads // (kv_heads or heads))


@struct.dataclass
class T5Bias(ScoreBias):
    """See `bucketed`."""

    table: Array
    both: bool = struct.field(pytree_node=False)
    far: int = struct.field(pytree_node=False)

    def __call__(self, i, j):  # noqa: D102
        return jnp.einsum("BTSKG->BKGTS", lookup(self.table, self.of(j[:, None, :] - i[:, :, None])))

    def of(self, distance: Array) -> Array:
        """The bucket of each distance: one for each short one, then ever wider ones on a logarithmic scale."""
        number = len(self.table) // 2 if self.both else len(self.table)
        later = jnp.where((distance > 0) & self.both, number, 0)
        distance = jnp.abs(distance) if self.both else jnp.maximum(-distance, 0)
        short = number // 2
        scale = jnp.log(jnp.maximum(distance, 1).astype(jnp.float32) / short) / jnp.log(jnp.float32(self.far / short))
        wide = jnp.minimum(short + (scale * (number - short)).astype(jnp.int32), number - 1)
        return jnp.where(distance < short, distance, wide) + later


def t5_bias(config: Config, table: Array | None, both: bool) -> ScoreBias | None:
    """A learned number [R,K,G] for each bucket of distances and head, added to the scores (Raffel et al. 2020, section 2.1); None for other
    variants. With `both`, half of the buckets are for what comes later."""
    return None if table is None or config.position != "buckets" else T5Bias(table, both, config.bucket_distance)
