"""Arrays that are computed in float32, and stored in bfloat16 or eight bits."""

import jax
import jax.numpy as jnp
from jax import Array

from tfm.sharding import named_sharding, spec_of
from train.training import eight_bits
from train.training.eight_bits import EightBits, is_eight_bits


def widen(tree):
    """The tree with its bfloat16 arrays, and those of eight bits, in float32."""

    def wide(leaf: Array | EightBits) -> Array:
        if isinstance(leaf, EightBits):
            return eight_bits.decode(leaf)
        return leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf

    return jax.tree.map(wide, tree, is_leaf=is_eight_bits)


def narrow(tree, like, key: Array):
    """The tree as `like` stores it; what becomes bfloat16 or eight bits is rounded at random."""
    leaves, structure = jax.tree.flatten(tree)
    salts = jax.random.bits(key, (len(leaves), 2))

    def stored(leaf: Array, old: Array | EightBits, salt: Array) -> Array | EightBits:
        if isinstance(old, EightBits):
            return eight_bits.encode(leaf, chance(leaf, salt))
        return leaf if leaf.dtype == old.dtype else at_random(leaf, salt)

    old_leaves = jax.tree.leaves(like, is_leaf=is_eight_bits)
    return jax.tree.unflatten(structure, map(stored, leaves, old_leaves, salts))


def at_random(x: Array, salt: Array) -> Array:
    """x float32 -> bfloat16, rounded up or down at random so that the mean is x (Gupta et al. 2015, section 3).

    With rounding to the nearest, changes of less than 0.2 % are lost: a second moment with beta2=0.999 would only grow.
    """
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32) + (_noise(x, salt) >> 16)
    return jax.lax.bitcast_convert_type((bits >> 16).astype(jnp.uint16), jnp.bfloat16)


def chance(x: Array, salt: Array) -> Array:
    """Uniform in [0, 1), float32 of the shape of x."""
    return (_noise(x, salt) >> 8).astype(jnp.float32) * 2.0**-24


def _noise(x: Array, salt: Array) -> Array:
    """uint32 of the shape of x: a hash of the index and the salt (two uint32), the same on any mesh (M16: 0.1 of the
    time of `jax.random.bits`)."""
    sharding = named_sharding(x, x, *spec_of(x))
    index = jnp.uint32(0)
    for axis, size in enumerate(x.shape):
        index = index * size + jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis, out_sharding=sharding)
    return _hash(_hash(index ^ salt[0]) ^ salt[1])


def _hash(x: Array) -> Array:
    """uint32 -> uint32, one to one: every bit of the result depends on all bits of x."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    return x ^ (x >> 16)
