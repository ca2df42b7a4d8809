"""What the loss of a task is: its arguments, and the sums that it returns."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

import tfm
from tfm.params import PyTree

# Sums over a batch, "loss" and "weight" among them; arrays [B, ...] for evaluation; and the memory of the next rows
# where the loss was called with one.
Sums = dict[str, PyTree]

# Begins the names of losses beside that of a task, among what a loss returns: sums over a batch whose mean is over the
# same weight, with their factor. The step minimizes `loss` and all of them.
AUXILIARY = "auxiliary_"

# loss(params, model, batch, key) -> Sums. A run with a memory or a teacher calls it with `Extra.arguments` as well.
Loss = Callable[..., Sums]

# The memory of the next rows, among what a loss returns.
MEMORY = "memory"


class Extra(NamedTuple):
    """What a loss reads beside the parameters and a part of a batch.

    memory: of the rows before, where rows continue one another; leaves are those of one part
    teacher: the parameters of the teacher of a run that has one
    """

    memory: tfm.SegmentMemory | None = None
    teacher: object = None

    @property
    def arguments(self) -> dict[str, PyTree]:
        """The keyword arguments of a loss: those of the two that the run has."""
        return {name: value for name, value in self._asdict().items() if value is not None}


# Of a run without a memory and without a teacher.
NO_EXTRA = Extra()


@dataclasses.dataclass(frozen=True)
class RatioLoss:
    """A loss with ratios among its sums, which divide by sums over all parts of a batch.

    compute: the loss
    totals: fields of a batch, or of all its parts -> what ratios divide by, which every part has among its fields
    """

    compute: Loss
    totals: Callable[[Mapping[str, Array]], dict[str, Array]]

    def __call__(self, params: object, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> Sums:
        """Sums over one part of a batch."""
        return self.compute(params, model, {**self.totals(batch), **batch}, key)


def objective(outputs: Sums) -> Array:
    """The sum that a step minimizes: the loss of a task and its auxiliary losses; a scalar."""
    return sum((value for name, value in outputs.items() if name.startswith(AUXILIARY)), outputs["loss"])


def scalar_sums(outputs: Sums) -> dict[str, Array]:
    """The sums over a batch among the outputs of a loss."""
    return {name: value for name, value in outputs.items() if getattr(value, "ndim", None) == 0}


def source_sums(batch: Mapping[str, Array], weights: Array, *losses: Array) -> dict[str, Array]:
    """`loss/S` and `weight/S`, float32 scalars, of source number S of a mixture: the parts that its rows have of the
    sums of `losses` and `weights`, each [B,...] and weighted already. A batch of one source alone has none."""
    if "sources" not in batch:
        return {}
    is_of = batch["sources"]
    sums: dict[str, Array] = {}
    for name, arrays in {"loss": losses, "weight": (weights,)}.items():
        of_rows = jnp.stack([values.sum(tuple(range(1, values.ndim))) for values in arrays])
        by_source = (of_rows.sum(0)[:, None] * is_of).sum(0)
        sums |= {f"{name}/{source}": by_source[source] for source in range(is_of.shape[1])}
    return sums
