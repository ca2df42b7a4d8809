"""The training state: what a checkpoint has."""

from typing import Any

from flax import struct
from jax import Array


@struct.dataclass
class State:
    """What a step changes: steps done, parameters and optimizer state.

    ema: a moving average of the parameters, or None
    memory: what layers remember of the rows of the last batch, leaves [parts, ...]; None where rows are texts of their
        own
    teacher: the parameters of the teacher, which no step changes and no checkpoint has; None without one
    """

    step: Array
    params: object
    opt: object
    ema: object = None
    memory: Any = None
    teacher: Any = None

    @property
    def eval_params(self):
        """The parameters that are evaluated and used later: the average, where there is one."""
        return self.params if self.ema is None else self.ema
