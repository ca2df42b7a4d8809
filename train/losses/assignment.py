"""The cheapest assignment of objects to queries, each object to a query of its own."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class _Search(NamedTuple):
    """Paths from an object to a free query, in every row of a batch.

    objects, queries: the prices that keep costs from being negative [B,o] and [B,q]
    matched: whether an object has a query, bool [B,o,q]
    reached: queries that a path has led to, bool [B,q]
    distance: of the shortest path to each other query [B,q]
    before: the query before each on its path, -1 for the object itself, int32 [B,q]
    last: the query that the search stands at, int32 [B]
    is_done: whether it is free, or nothing is searched, bool [B]
    """

    objects: Array
    queries: Array
    matched: Array
    reached: Array
    distance: Array
    before: Array
    last: Array
    is_done: Array


def assign(costs: Array, is_object: Array) -> Array:
    """costs float32 [B,o,q] with o <= q, and is_object bool [B,o] -> bool [B,o,q]: the query of every object, so that
    the sum of their costs is the smallest (Kuhn 1955; shortest augmenting paths: Jonker & Volgenant 1987).

    All rows of the batch go on together. Arrays are compared and summed, never indexed: on a mesh no row leaves its
    device (M99). At most o squared rounds.
    """
    costs = jnp.where(is_object[:, :, None], costs, 0.0)
    objects, queries = jnp.zeros_like(costs[:, :, 0]), jnp.zeros_like(costs[:, 0])

    def add(index: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        is_start = (jnp.arange(costs.shape[1]) == index)[None] & is_object
        search = _Search(
            *state,
            reached=queries > 0,
            distance=queries + jnp.inf,
            before=_nobody(queries),
            last=_nobody(queries[:, 0]),
            is_done=~is_start.any(1),
        )
        search = jax.lax.while_loop(lambda s: ~s.is_done.all(), lambda s: _step(s, costs, is_start), search)
        last = jnp.where(is_start.any(1), search.last, -1)
        matched, _ = jax.lax.while_loop(
            lambda path: (path[1] >= 0).any(),
            lambda path: _flip(*path, search.before, is_start),
            (search.matched, last),
        )
        return search.objects, search.queries, matched

    return jax.lax.fori_loop(0, costs.shape[1], add, (objects, queries, costs > jnp.inf))[2]


def _nobody(like: Array) -> Array:
    """-1, int32, of the shape of an array."""
    return jnp.zeros_like(like, jnp.int32) - 1


def _is(queries: Array, count: int) -> Array:
    """Numbers int32 [B] -> bool [B,count]: where each is."""
    return jnp.arange(count)[None] == queries[:, None]


def _step(search: _Search, costs: Array, is_start: Array) -> _Search:
    """Every row goes on to the query with the shortest path."""
    stand = _is(search.last, costs.shape[2])
    holder = (search.matched & stand[:, None]).any(2)
    holder = jnp.where((search.last < 0)[:, None], is_start, holder)
    reduced = jnp.where(holder[:, :, None], costs - search.objects[:, :, None], 0).sum(1) - search.queries
    is_shorter = ~search.reached & (reduced < search.distance)
    distance = jnp.where(is_shorter, reduced, search.distance)
    before = jnp.where(is_shorter, search.last[:, None], search.before)
    ahead = jnp.where(search.reached, jnp.inf, distance)
    step, last = ahead.min(1, keepdims=True), ahead.argmin(1).astype(jnp.int32)
    holders = is_start | (search.matched & search.reached[:, None]).any(2)
    chosen = _is(last, costs.shape[2])
    following = _Search(
        objects=search.objects + step * holders,
        queries=search.queries - jnp.where(search.reached, step, 0),
        matched=search.matched,
        reached=search.reached | chosen,
        distance=jnp.where(search.reached, distance, distance - step),
        before=before,
        last=last,
        is_done=~(search.matched & chosen[:, None]).any((1, 2)),
    )
    return jax.tree.map(
        lambda old, new: jnp.where(jnp.expand_dims(search.is_done, range(1, old.ndim)), old, new), search, following
    )


def _flip(matched: Array, last: Array, before: Array, is_start: Array) -> tuple[Array, Array]:
    """The query at the end of a path goes to the object that has the query before it."""
    is_end = _is(last, matched.shape[2])
    previous = jnp.where(is_end, before, -1).max(1)
    holder = (matched & _is(previous, matched.shape[2])[:, None]).any(2)
    holder = jnp.where((previous < 0)[:, None], is_start, holder)
    is_path = (last >= 0)[:, None, None]
    return jnp.where(is_end[:, None] & is_path, holder[:, :, None], matched), previous
