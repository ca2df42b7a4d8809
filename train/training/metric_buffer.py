"""Sums of the training steps since the last log line, read from the device a little behind it."""

import math
from collections import deque
from collections.abc import Mapping, Sequence

import jax

# Steps in flight before the host waits for the oldest: enough that the device never waits for the host.
IN_FLIGHT = 2


class NotFiniteError(Exception):
    """The loss or the gradient of `step` is not finite, or the parameters that it leaves.

    values: `loss` and `grad_norm`, or none
    names: those parameters
    """

    def __init__(self, step: int, values: Mapping[str, float], names: Sequence[str] = ()):
        super().__init__(step)
        self.step, self.values, self.names = step, dict(values), list(names)


class MetricBuffer:
    """Adds up what steps return. `sums` are part of a checkpoint, so that a resumed run logs the same numbers."""

    def __init__(self, sums: Mapping[str, float] | None = None):
        self.sums = dict(sums or {})
        self._pending: deque = deque()

    def add(self, step: int, sums):
        """The sums of a step, still on the device. Raises NotFiniteError for an earlier step that went wrong."""
        self._pending.append((step, sums))
        while len(self._pending) > IN_FLIGHT:
            self._take()

    def flush(self):
        """Waits for all steps so far. Raises NotFiniteError."""
        while self._pending:
            self._take()

    def pop(self) -> dict[str, float]:
        """The sums so far, `steps` among them; the buffer is empty afterwards."""
        sums = self.sums
        self.sums = {}
        return sums

    def _take(self):
        step, sums = self._pending.popleft()
        values = {name: float(value) for name, value in jax.device_get(sums).items()} | {"steps": 1.0}
        if not math.isfinite(values["loss"]) or not math.isfinite(values["grad_norm"]):
            raise NotFiniteError(step, {name: values[name] for name in ("loss", "grad_norm")})
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
