"""Parameters of residual schemes that are set by one pass over a batch, before training."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from tfm.attention.cross import Memory
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, Profile
from tfm.layers.block import block_specs
from tfm.layers.rows import unstack
from tfm.layers.stack import Layers, Stacked, by_layer, stack
from tfm.tables.residuals import RESIDUALS


def needs_calibration(config: Config) -> bool:
    """Whether a residual scheme of the model is set by a batch."""
    return any(RESIDUALS[kind.residual.name].calibrate is not None for kind in config.kinds)


def calibrate_layers(
    model: Stacked, config: Config, x: Array, context: AttentionContext, memory: Memory | None = None
) -> Layers:
    """The blocks of a stack, set by one pass over embeddings x [B,T,D], as `Residual.calibrate` asks for."""
    outputs = stack(model, config, x, replace(context, record_branches=True), memory=memory)[1]
    branches = [output.branches for output in by_layer(config, outputs)]
    blocks = _rows(config, model.layers)
    plan = config.layer_plan
    kinds = [*plan.prefix, *plan.period * plan.times, *plan.tail]
    profile = Profile(x, branches, [block_specs(kind, config, memory is not None) for kind in kinds])
    for options in dict.fromkeys(kind.residual for kind in kinds):
        calibrate = RESIDUALS[options.name].calibrate
        if calibrate is None:
            continue
        calibrated = calibrate(blocks, options, config, profile)
        blocks = [
            new if kind.residual == options else block
            for block, new, kind in zip(blocks, calibrated, kinds, strict=True)
        ]
    return _stacked(config, blocks)


def _rows(config: Config, layers: Layers) -> list[Any]:
    """The blocks of all layers in order. Raises ValueError where layers share one block."""
    if config.share_layers:
        raise ValueError(
            "share_layers=true has one block for all layers, which a batch cannot set for each; share none"
        )
    repetitions = zip(*(unstack(tree, config.layer_plan.times) for tree in layers.period), strict=True)
    return [*layers.prefix, *(block for blocks in repetitions for block in blocks), *layers.tail]


def _stacked(config: Config, blocks: Sequence[Any]) -> Layers:
    """The inverse."""
    plan = config.layer_plan
    first, size = len(plan.prefix), len(plan.period)
    end = first + plan.times * size
    period = tuple(
        jax.tree.map(lambda *rows: jnp.stack(rows), *blocks[first + index : end : size]) for index in range(size)
    )
    return Layers(tuple(blocks[:first]), period, tuple(blocks[end:]))
