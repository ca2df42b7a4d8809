"""Mixers that compare no tokens: weights are tables of places in a text, or read single tokens."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from tfm.interfaces import AttentionContext
from tfm.sharding import replicate_length, take_positions


class Pairs(NamedTuple):
    """The queries and keys of a pass.

    i, j: int32 [1,T] and [1,S], their slots
    queries, keys: int32 [B,T] and [B,S], their places in their texts; None: 0..T-1 in every row
    allowed: bool [B or 1,T,S], the keys that a query may see; None: all
    """

    i: Array
    j: Array
    queries: Array | None
    keys: Any
    allowed: Array | None


def pairs_of(context: AttentionContext, slots: int = 0) -> Pairs:
    """The pairs of new tokens [B,T] with those in the slots of a decode state, if it has any, and with themselves."""
    length = context.positions.shape[1]
    new = context.length + jnp.arange(length)
    key_slots = jnp.concatenate([jnp.arange(slots), new])
    i, j = new[None], key_slots[None]
    allowed = None if not context.causal else j[:, None, :] <= i[:, :, None]
    if context.mask is not None:
        mask = context.mask(i, j)
        allowed = mask if allowed is None else allowed & mask
    if slots:
        is_written = jnp.concatenate([jnp.arange(slots) < context.length, jnp.ones(length, bool)])
        allowed = is_written[None, None] if allowed is None else allowed & is_written[None, None]
    if not context.keep and not _has_segments(context):
        return Pairs(i, j, None, None, allowed)
    queries = replicate_length(context.positions)
    if not slots:
        return Pairs(i, j, queries, queries, allowed)
    return Pairs(i, j, queries, jnp.maximum(j + queries[:, -1:] - new[-1], 0), allowed)


def take_last(x: Array, places: Array) -> Array:
    """x [B,T,...,P] at places [B,S] of its last axis -> [B,T,...,S]."""
    return jnp.moveaxis(take_positions(jnp.moveaxis(x, -1, 1), places), 1, -1)


def _has_segments(context: AttentionContext) -> bool:
    """Whether several texts may share a row."""
    return context.mask is not None and any(part.segment_ids is not None for part in context.mask.conjuncts)
