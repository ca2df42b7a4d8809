"""Patterns of softmax attention: one file a pattern, named like its tag in `tfm.config.patterns`."""

from collections.abc import Callable
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, MixerOutput, no_parameters
from tfm.masks.distance import window
from tfm.masks.mask import Mask
from tfm.masks.place import Restarted
from tfm.sharding import replicate_length


class Pattern(NamedTuple):
    """The functions of one pattern, as a record.

    mask: (options, config, is_causal) -> a static mask of all texts; None: every key
    specs: (options, config) -> the spec tree of one layer
    prepare: None, or (call, context) -> the mask of a pass, in place of `in_texts` of `mask`
    bias: None, or (call, q [B,T,K,G,H] before positions, bias of positions or None) -> the bias of scores, or None. The
        `prepared` of this call is the context of the pass
    forward: None, or (call, x [B,T,D], score) -> y [B,T,D] and a `MixerOutput`, for a pattern that does more than
        forbid pairs. The call and `score` are those of `Mixer.forward`
    """

    mask: Callable[[Any, Config, bool], Mask | None]
    specs: Callable[..., Any] = no_parameters
    prepare: Callable[[LayerCall, AttentionContext], Mask | None] | None = None
    bias: Callable[..., ScoreBias | None] | None = None
    forward: Callable[..., tuple[Array, MixerOutput]] | None = None


def in_texts(mask: Mask, context: AttentionContext) -> Mask:
    """A static mask whose positions count from the start of each text, wherever that is in its row."""
    if mask.shift_invariant or not context.restarts:
        return mask
    starts = text_starts(context)
    parts = [part if part.shift_invariant else Restarted(part, starts) for part in mask.conjuncts]
    return reduce(and_, parts, window(*mask.reach))


def text_starts(context: AttentionContext) -> Array:
    """The column at which the text of each position begins, int32 [B,T]; [B,1] for all positions of a row."""
    count, positions = context.positions.shape[1], replicate_length(context.positions)
    if context.keep:  # padding before a text has position 0 too, so that only the last position counts
        return context.length + count - 1 - positions[:, -1:]
    return jnp.arange(count)[None] - positions
