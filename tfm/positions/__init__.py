"""Positions: how a model knows where a token stands. One file a scheme, named like its tag in
`tfm.config.positions`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array

from tfm import variants
from tfm.attention.bias import ScoreBias
from tfm.attention.context import AttentionContext, LayerCall
from tfm.attention.project import Attention
from tfm.config.model import Config
from tfm.config.positions import Position as PositionOptions


def plain_embedding(params: Any, options: PositionOptions, config: Config, x: Array, positions: Array) -> Array:
    """The embeddings as they are."""
    return x


def prepare_nothing(params: Any, options: PositionOptions, config: Config, context: AttentionContext) -> None:
    """Nothing is shared by the layers."""


def plain_score(call: LayerCall, q: Array, k: Array, projections: Attention) -> tuple[Array, Array, ScoreBias | None]:
    """Queries and keys as they are, and no bias."""
    return q, k, None


class Position(NamedTuple):
    """The functions of one scheme, as a record.

    embed_specs: (options, config) -> the spec tree of `embed`
    embed: (params, options, config, x, positions [B,T]) -> the embeddings x [B,T,U], float32, with positions
    shared_specs: (options, config) -> the spec tree that all layers with these options share
    specs: (options, config) -> the spec tree of one layer
    prepare: (shared parameters, options, config, context) -> once a pass: whatever the layers share
    score: (call, q, k, projections) -> q, k, bias: positions in the scores of one layer. `projections` are those
        of its queries and keys
    """

    embed_specs: Callable[..., Any] = variants.no_parameters
    embed: Callable[..., Any] = plain_embedding
    shared_specs: Callable[..., Any] = variants.no_parameters
    specs: Callable[..., Any] = variants.no_parameters
    prepare: Callable[..., Any] = prepare_nothing
    score: Callable[..., Any] = plain_score


def position_of(options: PositionOptions) -> Position:
    """The functions of the scheme that options describe."""
    return variants.load(options).POSITION
