"""The training state: what a checkpoint has."""

from flax import struct
from jax import Array

import tfm
from tfm.params import PyTree


@struct.dataclass
class RunNumbers:
    """The data of the seed's key, uint32, and the learning rates by step, float32 [n]."""

    key: Array
    rates: Array


@struct.dataclass
class State:
    """What a step changes: steps done, parameters and optimizer state.

    ema: a moving average of the parameters, or None
    memory: what layers remember of the rows of the last batch, leaves [parts, ...]; None where rows are texts of their
        own
    teacher: the parameters of the teacher, which no step changes and no checkpoint has; None without one
    numbers: what makes a run of its own of a program that many runs share; likewise
    """

    step: Array
    params: object
    opt: object
    ema: object = None
    memory: tfm.SegmentMemory | None = None
    teacher: PyTree = None
    numbers: RunNumbers | None = None

    @property
    def eval_params(self):
        """The parameters that are evaluated and used later: the average, where there is one."""
        return self.params if self.ema is None else self.ema
