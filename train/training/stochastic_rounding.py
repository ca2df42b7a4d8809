"""Arrays that are computed in float32 and stored in bfloat16."""

import jax
import jax.numpy as jnp
from jax import Array

from tfm.sharding import named_sharding, spec_of


def widen(tree):
    """The tree with its bfloat16 arrays in float32."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf, tree)


def narrow(tree, like, key: Array):
    """The tree in the dtypes of `like`; what becomes bfloat16 is rounded at random."""
    leaves, structure = jax.tree.flatten(tree)
    salts = jax.random.bits(key, (len(leaves), 2))
    rounded = [
        leaf if leaf.dtype == old.dtype else at_random(leaf, salt)
        for leaf, old, salt in zip(leaves, jax.tree.leaves(like), salts, strict=True)
    ]
    return jax.tree.unflatten(structure, rounded)


def at_random(x: Array, salt: Array) -> Array:
    """x float32 -> bfloat16, rounded up or down at random so that the mean is x (Gupta et al. 2015, section 3).

    With rounding to the nearest, changes of less than 0.2 % are lost: a second moment with beta2=0.999 would only grow.
    The noise is a hash of the index in x and the salt (two uint32): the same on any mesh (M16: 0.1 of the time of
    `jax.random.bits`).
    """
    sharding = named_sharding(x, x, *spec_of(x))
    index = jnp.uint32(0)
    for axis, size in enumerate(x.shape):
        index = index * size + jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis, out_sharding=sharding)
    noise = _hash(_hash(index ^ salt[0]) ^ salt[1]) >> 16
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32) + noise
    return jax.lax.bitcast_convert_type((bits >> 16).astype(jnp.uint16), jnp.bfloat16)


def _hash(x: Array) -> Array:
    """uint32 -> uint32, one to one: every bit of the result depends on all bits of x."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    return x ^ (x >> 16)
