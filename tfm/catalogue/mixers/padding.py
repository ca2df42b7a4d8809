"""What mixers without scores of pairs of tokens can follow of a mask: padding, and perhaps segments."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from tfm.interfaces import AttentionContext, refuse
from tfm.masks.distance import MaskParts, Window, decompose
from tfm.options.choices import Options


class SegmentedContext(NamedTuple):
    """The context of a pass; bool [B or 1,T], which places hold tokens; and int32 [B or 1,T], the segment of each.

    None: all are tokens, and of one segment.
    """

    context: AttentionContext
    valid: Array | None
    segments: Array | None


def refuse_decoders(options: Options, context: AttentionContext, remedy: str = "mixer, such as mixer=softmax") -> None:
    """Raises VariantError for a pass in which no token sees a later one; remedy: what a decoder needs another of."""
    if context.causal:
        refuse(options, "mixes later tokens into all", f"a decoder needs another {remedy}")


def valid_tokens(options: Options, context: AttentionContext) -> Array | None:
    """bool [B or 1,T], which of the places of a pass hold tokens; None: all.

    Raises VariantError for a mask that says more than that.
    """
    parts = decompose(context.mask)
    if parts.segments is not None or _asks_about_queries(parts):
        refuse(options, "reads texts with padding, and no other mask", "put every text into a row of its own")
    return _valid(parts, context)


def valid_tokens_and_segments(options: Options, context: AttentionContext) -> tuple[Array | None, Array | None]:
    """`valid_tokens`, and int32 [B or 1,T], the segment of each token; None: all are of one.

    Raises VariantError for a mask that says more than that.
    """
    parts = decompose(context.mask)
    if _asks_about_queries(parts):
        refuse(options, "reads texts with padding and segments, and no other mask", "try mixer=softmax")
    segments = None if parts.segments is None else parts.segments.segment_ids
    return _valid(parts, context), segments[1] if segments else None


def valid_of(context: AttentionContext) -> Array | None:
    """bool [B or 1,T], which of the places of a pass hold tokens, as far as its mask says it; None: all."""
    parts = decompose(context.mask)
    valid = _valid(parts, context)
    segments = None if parts.segments is None else parts.segments.segment_ids
    if segments is None:
        return valid
    is_text = segments[1] > 0
    return is_text if valid is None else valid & is_text


def _asks_about_queries(parts: MaskParts) -> bool:
    return bool(parts.rest) or parts.pattern != Window(None, None)


def _valid(parts: MaskParts, context: AttentionContext) -> Array | None:
    """The places that all masks of keys allow."""
    if not parts.keys:
        return None
    new = jnp.arange(context.positions.shape[1])[None] + context.length
    valid = jnp.ones_like(new, bool)
    for mask in parts.keys:
        valid = valid & mask(jnp.zeros((1, 1), jnp.int32), new)[:, 0]
    return valid
