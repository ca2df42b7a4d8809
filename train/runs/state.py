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
class LossScale:
    """The scale of a loss (`loss_scale.py`).

    value: float32 [], a power of two
    updates: int32 [], those in a row since it changed
    overflows: int32 [], updates that were left out since the run began
    """

    value: Array
    updates: Array
    overflows: Array


@struct.dataclass
class State:
    """What a step changes: steps done, parameters and optimizer state.

    ema: a moving average of the parameters, or None
    memory: what layers remember of the rows of the last batch, leaves [parts, ...]; None where rows are texts of their
        own
    scale: that of the loss, where layers compute in float16; else None
    teacher: the parameters of the teacher, which no step changes and no checkpoint has; None without one
    numbers: what makes a run of its own of a program that many runs share; likewise
    """

    step: Array
    params: object
    opt: object
    ema: object = None
    memory: tfm.SegmentMemory | None = None
    scale: LossScale | None = None
    teacher: PyTree = None
    numbers: RunNumbers | None = None

    @property
    def eval_params(self):
        """The parameters that are evaluated and used later: the average, where there is one."""
        return self.params if self.ema is None else self.ema
