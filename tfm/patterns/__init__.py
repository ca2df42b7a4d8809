"""Patterns of softmax attention: one file a pattern, named like its tag in `tfm.config.patterns`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.catalogue.patterns.window_partition import WindowPartition
from tfm.config.model import Config
from tfm.config.patterns import Pattern as PatternOptions
from tfm.interfaces import AttentionContext, LayerCall, no_parameters
from tfm.masks.mask import Mask
from tfm.sharding import replicate_length


def same_mask(options: PatternOptions, mask: Mask | None, context: AttentionContext) -> Mask | None:
    """The mask as it is."""
    return mask


def same_bias(call: LayerCall, q: Array, bias: ScoreBias | None) -> ScoreBias | None:
    """The bias as it is."""
    return bias


def same_heads(call: LayerCall, x: Array, heads: Array, score: Callable[..., Any]) -> Array:
    """The heads as they are."""
    return heads


class Keys(NamedTuple):
    """What the queries of a layer see.

    keys, values: [B,S,K,H]
    mask, bias: of all pairs of queries and keys, or None
    """

    keys: Array
    values: Array
    mask: Mask | None
    bias: ScoreBias | None


def same_keys(call: LayerCall, x: Array, keys: Keys, project: Callable[[Array], tuple[Array, Array]]) -> Keys:
    """The keys as they are."""
    return keys


def no_windows(options: PatternOptions, config: Config) -> WindowPartition | None:
    """Texts are computed as they are."""
    return None


class Pattern(NamedTuple):
    """The functions of one pattern, as a record. The `prepared` of a call is the context of the pass.

    mask: (options, config, is_causal) -> a static mask of all texts; None: every key
    in_row: (options, mask, context) -> the mask in rows of this length, for a pattern that depends on it
    specs: (options, config) -> the spec tree of one layer
    bias: (call, q [B,T,K,G,H] before positions, bias of positions or None) -> the bias of scores, or None
    extend: (call, x [B,T,D], `Keys`, project) -> `Keys`, with others behind them. `project` makes keys and values of
        states
    replace: (call, x [B,T,D], heads [B,T,K,G,H], score) -> heads, some of them computed in another manner. `score`
        is that of `Mixer.forward`
    windows: (options, config) -> the windows of a grid that are computed apart, as rows of a batch; None: there are
        none. They take the place of the mask
    """

    mask: Callable[[Any, Config, bool], Mask | None]
    in_row: Callable[..., Mask | None] = same_mask
    specs: Callable[..., Any] = no_parameters
    bias: Callable[..., ScoreBias | None] = same_bias
    extend: Callable[..., Keys] = same_keys
    replace: Callable[..., Array] = same_heads
    windows: Callable[[Any, Config], WindowPartition | None] = no_windows


def text_starts(context: AttentionContext) -> Array:
    """The column at which the text of each position begins, int32 [B,T]; [B,1] for all positions of a row."""
    count, positions = context.positions.shape[1], replicate_length(context.positions)
    if context.keep:  # padding before a text has position 0 too, so that only the last position counts
        return context.length + count - 1 - positions[:, -1:]
    return jnp.arange(count)[None] - positions
