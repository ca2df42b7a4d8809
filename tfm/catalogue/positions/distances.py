"""Pairs of tokens by their distance: what depends on j - i alone is computed once a distance, not once a pair.

Skewing (Huang et al. 2018, section 3.4.1) turns rows of distances into rows of keys without an index for each pair:

    distances  -2 -1  0  1  2          keys  0  1  2
    query 0     .  .  a  b  c                a  b  c
    query 1     .  d  e  f  .      ->        d  e  f
    query 2     g  h  i  .  .                g  h  i

The row of a query begins a place earlier than that of the query before it, so that a flat copy whose rows are shorter
by 1 has the keys in columns. Positions of queries, and those of keys, must be consecutive.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from tfm.params import PyTree
from tfm.sharding import named_sharding, spec_of


def distances(i: Array, j: Array, causal: bool = False) -> Array:
    """The distances j - i of queries i [1,T] and keys j [1,S] in order, int32 [R]; the first is that of the last query
    and the first key.

    R is T + S. With `causal`, the queries are the last of the keys and later keys do not matter: then it is S + 1.
    """
    first = j[0, 0] - i[0, 0] - (i.shape[1] - 1)
    return first + jnp.arange((0 if causal else i.shape[1] - 1) + j.shape[1] + 1)


def skew(x: Array, keys: int) -> Array:
    """x [...,T,R] of `distances` -> [...,T,S]; any finite numbers for later keys where R is S + 1."""
    queries, columns = x.shape[-2:]
    flat = _reshape_last(x, 2, queries * columns)[..., queries - 1 : queries - 1 + queries * (columns - 1)]
    return _reshape_last(flat, 1, queries, columns - 1)[..., :keys]


def unskew(x: Array, columns: int) -> Array:
    """x [...,T,S] -> [...,T,R] by distance, the transpose of `skew`; x is 0 for later keys where R is S + 1."""
    *rest, queries, keys = x.shape
    leading = [(0, 0)] * len(rest)
    wide = jnp.pad(x, (*leading, (0, 0), (0, columns - 1 - keys)))
    flat = jnp.pad(_reshape_last(wide, 2, queries * (columns - 1)), (*leading, (queries - 1, 1)))
    return _reshape_last(flat, 1, queries, columns)


def toeplitz(rows: Array, queries: int, keys: int) -> Array:
    """rows [R,...] by distance -> [...,T,S]: equal along each diagonal."""
    rows = jnp.moveaxis(rows, 0, -1)[..., None, :]
    return skew(jnp.broadcast_to(rows, (*rows.shape[:-2], queries, rows.shape[-1])), keys)


def on_query_shards(function: Callable[..., Array], axes: tuple[str, ...], *operands: PyTree) -> Array:
    """`function(*operands)`, on every device for its own queries where the mesh shards their length.

    axes: the letters of each operand and of the result; operands without T are on every device in full. The last
    operand is the positions of the queries, [1,T].
    """
    mesh_axis = spec_of(operands[-1])[-1]
    if mesh_axis is None:
        return function(*operands)
    specs = [PartitionSpec(*(mesh_axis if letter == "T" else None for letter in letters)) for letters in axes]
    run = jax.shard_map(function, in_specs=tuple(specs[:-1]), out_specs=specs[-1], axis_names={mesh_axis})
    return run(*operands)


def _reshape_last(x: Array, count: int, *sizes: int) -> Array:
    """x with its last `count` axes in another shape; they are not sharded."""
    kept = spec_of(x)[:-count]
    sharding = named_sharding(x, x, *kept, *(None for _ in sizes))
    return jnp.reshape(x, (*x.shape[:-count], *sizes), out_sharding=sharding)
