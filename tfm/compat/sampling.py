"""Draws of tokens with the keys of the old classes: the same text for the same prng_key."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.decoding.sampling import Sample, filter_logits


@struct.dataclass
class BatchSample(Sample):
    """Draws for all rows with a key a step.

    keys: the key of every step
    vocab: tokens of the model; the noise of a draw depends on how many there are
    """

    keys: Array | None = None
    vocab: int = struct.field(pytree_node=False, default=0)

    def choose(self, logits: Array, step: Array | int) -> Array:
        """Logits [B,V] -> the next token [B] int32."""
        assert self.keys is not None
        logits = self.with_temperature(logits[:, : self.vocab])
        if self.filters:
            order = jnp.argsort(logits, axis=-1, descending=True)
            sorted_logits = jnp.take_along_axis(logits, order, axis=-1)
            if self.top_k is not None:  # exactly so many, whatever is as probable as the last of them
                rank = jnp.arange(self.vocab)[None]
                sorted_logits = jnp.where(rank < jnp.reshape(self.top_k, (-1, 1)), sorted_logits, -jnp.inf)
            sorted_logits = filter_logits(self, sorted_logits)
            logits = jnp.take_along_axis(sorted_logits, jnp.argsort(order, axis=-1), axis=-1)
        return jax.random.categorical(self.keys[step], logits, axis=-1).astype(jnp.int32)


def step_keys(key: Array, steps: int) -> Array:
    """The key of every step: each step splits the key of the one before."""

    def split(key: Array, _: None) -> tuple[Array, Array]:
        draw, following = jax.random.split(key)
        return following, draw

    return jax.lax.scan(split, key, None, steps)[1]
