"""What the loss of a task is: its arguments, and the sums that it returns."""

from collections.abc import Callable
from typing import NamedTuple

from jax import Array

import tfm
from tfm.params import PyTree

# Sums over a batch, "loss" and "weight" among them; arrays [B, ...] for evaluation; and the memory of the next rows
# where the loss was called with one.
Sums = dict[str, PyTree]

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


def scalar_sums(outputs: Sums) -> dict[str, Array]:
    """The sums over a batch among the outputs of a loss."""
    return {name: value for name, value in outputs.items() if getattr(value, "ndim", None) == 0}
