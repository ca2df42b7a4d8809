"""What a checkpoint holds besides the training state."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from train.training.early_stopping import EarlyStopping
from train.training.metric_buffer import MetricBuffer


@dataclasses.dataclass(frozen=True)
class Progress:
    """The sums since the last log line, and the best evaluation so far."""

    buffer: MetricBuffer
    stopping: EarlyStopping

    def note(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {"window": self.buffer.sums, "best": self.stopping.state}

    def restore(self, note: Mapping[str, Any]):
        """Goes on from the note of a checkpoint."""
        self.buffer.sums = dict(note["window"])
        self.stopping.state = note["best"]
