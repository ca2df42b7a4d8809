"""Poolers with the activation of the layers."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfm.config.model import Config
from tfm.hf.config import ACTIVATIONS
from tfm.models.classifier import POOLERS, Classifier


def read_pooler(fields: Mapping[str, Any], default: str) -> dict[str, Any]:
    """The activation of the pooler: that of the layers, by default `default`."""
    return {"head.pool_activation": ACTIVATIONS.get(fields.get("hidden_act", default), "tanh")}


def without_pooler(config: Config, params: Any) -> tuple[Config, Any]:
    """A model whose head has no pooler, with the activation that a pooler of its family would have."""
    if isinstance(params, Classifier) or config.activation not in POOLERS:
        return config, params
    activation: Any = config.activation
    head = dataclasses.replace(config.head, pool_activation=activation)
    return dataclasses.replace(config, head=head), params
