"""Numbers that are computed in float32 and kept in bfloat16."""

import jax
import jax.numpy as jnp
from jax import Array

from tfm.sharding import named_sharding, spec_of


def widen(tree):
    """Every bfloat16 array in float32; the rest as it is."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf, tree)


def narrow(tree, like, key: Array):
    """Every array in the dtype that it has in `like`, rounded at random where that is bfloat16."""
    leaves, structure = jax.tree.flatten(tree)
    before = jax.tree.leaves(like)
    salts = jax.random.bits(key, (len(leaves), 2))
    fit = lambda leaf, old, salt: leaf if leaf.dtype == old.dtype else at_random(leaf, salt)
    return jax.tree.unflatten(structure, [fit(*each) for each in zip(leaves, before, salts, strict=True)])


def at_random(x: Array, salt: Array) -> Array:
    """x float32 -> bfloat16, the next one up or down, each the more often the nearer it is: the mean is x (Gupta et al. 2015, section 3).

    Rounded to the nearest, what changes by less than 0.2 % never changes: a second moment with beta2=0.999 would only
    grow. The noise is a hash of the place in x and the salt, two uint32: the same on any mesh (M16: 0.1 of the time of
    `jax.random.bits`).
    """
    place, sharding = jnp.uint32(0), named_sharding(x, x, *spec_of(x))
    for axis, size in enumerate(x.shape):
        place = place * size + jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis, out_sharding=sharding)
    noise = _hash(_hash(place ^ salt[0]) ^ salt[1]) >> 16
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32) + noise
    return jax.lax.bitcast_convert_type((bits >> 16).astype(jnp.uint16), jnp.bfloat16)


def _hash(x: Array) -> Array:
    """uint32 -> uint32, one to one: every bit of the result depends on all bits of x."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    return x ^ (x >> 16)
