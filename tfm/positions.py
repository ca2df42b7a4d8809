"""Where a token stands: embeddings added to the token's, rotations of queries and keys, and biases added to attention scores."""

import dataclasses

import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import reshard

from tfm import params
from tfm.config import Config
from tfm.ops import lookup


def position_specs(config: Config):
    """The table [P,D] of learned positions; None for a variant without parameters.

    It starts as sinusoids of the size of other weights, not as noise: relative places are then there to be found from the first step.
    bert-tiny after 1000 steps on the built-in text: accuracy 0.161 against 0.155, validation loss 5.60 against 5.65.
    """
    if config.position != "learned":
        return None

    def init(key, shape, sharding):
        waves = config.init_std * 2**0.5 * sinusoidal(None, jnp.arange(shape[0])[None], shape[1])[0]
        return waves if sharding is None else reshard(waves, sharding)

    return dataclasses.replace(params.weight(config, "PD"), init=init)


def learned(table: Array | None, positions: Array, width: int) -> Array:
    """positions [B,T] -> rows [B,T,D] of a trained table (Devlin et al. 2018)."""
    assert table is not None, "learned positions need their table"
    return lookup(table, positions)


def sinusoidal(table: Array | None, positions: Array, width: int) -> Array:
    """positions [B,T] -> [B,T,D]: sines in even columns and cosines in odd ones, of wavelengths from 2 pi to 10,000 * 2 pi, in float32
    (Vaswani et al. 2017, section 3.5)."""
    wavelengths = 10_000.0 ** (jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angles = positions[..., None].astype(jnp.float32) / wavelengths[None, None]
    waves = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return waves.reshape(*positions.shape, -1)[..., :width]


def no_positions(table: Array | None, positions: Array, width: int) -> Array:
    """Zeros [B,T,D], for models that place tokens in attention or not at all."""
    return jnp.zeros((*positions.shape, width), jnp.float32)


# Rotary positions are no part of the embedding.
POSITIONS = {"learned": learned, "sinusoidal": sinusoidal, "rotary": no_positions, "none": no_positions}


def rotary(config: Config, positions: Array) -> Array | None:
    """positions [B,T] -> float32 angles [B,T,H/2], H the head size, that `rotate` turns queries and keys by; None for other variants.

    Pair n of a head turns by `config.rotary_base` ** (-2 n / H) a position (Su et al. 2021, eq. 15).
    """
    if config.position != "rotary":
        return None
    size = config.sizes["H"]
    speeds = config.rotary_base ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    return positions[..., None].astype(jnp.float32) * speeds[None, None]


def rotate(x: Array, angles: Array | None) -> Array:
    """x [B,T,...,H], angles [B,T,H/2] -> x with the pairs (n, n + H/2) of its last axis turned; computed in float32.

    The score of two tokens then depends on the distance between them alone (Su et al. 2021, eq. 16; pairs as in GPT-NeoX and Llama).
    """
    if angles is None:
        return x
    angles = jnp.expand_dims(angles, range(2, x.ndim - 1))
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    one, two = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([one * cos - two * sin, two * cos + one * sin], axis=-1).astype(x.dtype)


class Bias:
    """`bias(i, j)`: query positions i [B or 1, T], key positions j [B or 1, S] -> float32 [B or 1, K, G, T, S], added to the scores."""

    def __call__(self, i: Array, j: Array) -> Array:
        """What to add to the score of query positions i for key positions j."""
        raise NotImplementedError

    def dense(self, queries: int, keys: int | None = None) -> Array:
        """The whole bias; as many keys as queries unless told."""
        return self(jnp.arange(queries)[None], jnp.arange(keys or queries)[None])


@struct.dataclass
class Alibi(Bias):
    """See `alibi`."""

    kv_heads: int = struct.field(pytree_node=False)
    groups: int = struct.field(pytree_node=False)

    def __call__(self, i, j):  # noqa: D102
        heads = self.kv_heads * self.groups
        slopes = 2.0 ** (-8 / heads * jnp.arange(1, heads + 1, dtype=jnp.float32)).reshape(1, self.kv_heads, self.groups, 1, 1)
        distance = jnp.abs(j[:, None, :] - i[:, :, None]).astype(jnp.float32)
        return -slopes * distance[:, None, None]


def alibi(heads: int, kv_heads: int | None = None) -> Bias:
    """Scores fall linearly with distance, each head at its own slope 2^(-8 n / heads) (Press et al. 2022), on both sides."""
    return Alibi(kv_heads or heads, heads // (kv_heads or heads))
