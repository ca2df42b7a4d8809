"""The loss of rows that meet one another, as in contrastive learning."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
from jax import Array

from tfm.config.model import Config
from train.losses.loss import Sums


@dataclass(frozen=True)
class JointLoss:
    """The `loss` of a task in which the rows of a batch meet one another. Parts of a batch are not losses of their own.

    encode: (params, model, fields of a part, key) -> vectors [rows, ...] of its rows
    compare: (params, vectors [parts, rows, ...], fields [parts, rows, ...]) -> what a loss returns
    """

    encode: Callable[..., Array]
    compare: Callable[..., Sums]

    def __call__(self, params: object, model: Config, batch: Mapping[str, Array], key: Array | None) -> Sums:
        """The loss of a batch in one part, as other tasks have it."""
        vectors, fields = jax.tree.map(lambda leaf: leaf[None], (self.encode(params, model, batch, key), dict(batch)))
        return self.compare(params, vectors, fields)
