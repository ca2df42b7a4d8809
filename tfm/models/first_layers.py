"""Some layers of an encoder or a decoder, as a model of their own: the first ones, or one of every few."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from tfm.config.model import Config
from tfm.layers.stack import Layers
from tfm.models.encoder import Encoder
from tfm.params import PyTree


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


def spaced_layers(model: Encoder, config: Config, count: int) -> tuple[Encoder, Config]:
    """The parameters and the configuration of `count` layers at equal distances, the first among them: every second one
    where the model has twice as many.

    Source: the first state of a student, Sanh et al. 2019 (DistilBERT), section 3. Raises ValueError for more layers
    than the model has, for one with stages, and where layers of several kinds would come in another order.
    """
    if not 1 <= count <= config.layers or config.stages:
        remedy = "a model with stages has no such part" if config.stages else f"choose 1 to {config.layers}"
        raise ValueError(f"layers={count} cannot be taken from {config.layers} layers; {remedy}")
    part = dataclasses.replace(config, layers=count)
    indices = [index * config.layers // count for index in range(count)]
    if [_kinds(config)[index] for index in indices] != _kinds(part):
        raise ValueError(f"layers={count} of {config.layers} are of other kinds than a model of {count} layers has")
    if config.share_layers:
        return model, part
    plan, chosen = part.layer_plan, [_layer(config, model.layers, index) for index in indices]
    prefix, period = len(plan.prefix), len(plan.period)
    tail = prefix + plan.times * period
    stacks = [chosen[prefix + kind : tail : period] for kind in range(period)]
    kept = Layers(
        prefix=tuple(chosen[:prefix]),
        period=tuple(jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows) for rows in stacks),
        tail=tuple(chosen[tail:]),
    )
    return dataclasses.replace(model, layers=kept), part


def _kinds(config: Config) -> list[Any]:
    """The kind of every layer."""
    plan = config.layer_plan
    return [*plan.prefix, *(plan.period * plan.times), *plan.tail]


def _layer(config: Config, layers: Layers, index: int) -> PyTree:
    """The parameters of one layer."""
    plan = config.layer_plan
    if index < len(layers.prefix):
        return layers.prefix[index]
    row, kind = divmod(index - len(layers.prefix), len(config.period))
    if row < plan.times:
        return jax.tree.map(lambda leaf: leaf[row], layers.period[kind])
    return layers.tail[kind]
