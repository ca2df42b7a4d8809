"""The first layers of an encoder or a decoder, as a model of their own."""

import dataclasses
from typing import Any

import jax

from tfm.config.model import Config
from tfm.layers.stack import Layers
from tfm.models.encoder import Encoder


def first_layers(model: Encoder, config: Config, count: int) -> tuple[Encoder, Config]:
    """The parameters and the configuration of the first `count` layers; the last norm is the one by which the next
    layer reads them.

    Source: features of a linear probe, Chen et al. 2020 (ImageGPT), section 2.4. Raises ValueError for more layers than
    the model has, and for one with stages.
    """
    if not 1 <= count <= config.layers or config.stages:
        remedy = "a model with stages has no such part" if config.stages else f"choose 1 to {config.layers}"
        raise ValueError(f"layer={count} of {config.layers} layers cannot be read; {remedy}")
    if count == config.layers:
        return model, config
    part = dataclasses.replace(config, layers=count)
    plan, layers = part.layer_plan, model.layers
    period = jax.tree.map(lambda leaf: leaf[: plan.times], layers.period)
    kept = Layers(
        prefix=layers.prefix[: len(plan.prefix)],
        period=period if plan.times else (),
        tail=tuple(_layer(config, layers, count - len(plan.tail) + index) for index in range(len(plan.tail))),
    )
    norm = model.norm if model.norm is None else _layer(config, layers, count).residual.mixer
    return dataclasses.replace(model, layers=kept, positions=model.positions[: len(part.positions)], norm=norm), part


def _layer(config: Config, layers: Layers, index: int) -> Any:
    """The parameters of one layer."""
    plan = config.layer_plan
    if index < len(layers.prefix):
        return layers.prefix[index]
    row, kind = divmod(index - len(layers.prefix), len(config.period))
    if row < plan.times:
        return jax.tree.map(lambda leaf: leaf[row], layers.period[kind])
    return layers.tail[kind]
