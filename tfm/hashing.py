"""Draws by a hash of places: a draw depends on its place alone, not on the order, the sizes or the shards of arrays."""

import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import NamedSharding


def mix(x: Array) -> Array:
    """uint32 -> uint32 of the same shape: every bit depends on all (the finalizer of MurmurHash3, Appleby 2011)."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    return x ^ (x >> 16)


def kept(words: Array, rate: float, shape: tuple[int, ...], sharding: NamedSharding | None) -> Array:
    """Words uint32 [2] -> bool of a shape, of which a fraction `rate` is false. It is `mix` of the place of an element,
    with the words before it and in its middle; the last bits are not mixed, for the first decide."""
    place = jnp.uint32(0)
    for axis in range(len(shape)):
        index = jax.lax.broadcasted_iota(jnp.uint32, shape, axis, out_sharding=sharding)
        place = place + index * jnp.uint32(math.prod(shape[axis + 1 :]) % 2**32)
    x = place ^ words[0]
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    return (x ^ (x >> 13) ^ words[1]) * jnp.uint32(0xC2B2AE35) >= threshold(rate)


def threshold(rate: float) -> Array:
    """The least of the words uint32 that are kept at a rate."""
    return jnp.uint32(int(rate * 2**32))
