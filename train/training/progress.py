"""What a checkpoint holds besides the training state."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from train.runs.metrics_lines import Written
from train.training.early_stopping import EarlyStopping
from train.training.metric_buffer import MetricBuffer


@dataclasses.dataclass
class Progress:
    """The sums since the last log line, the best evaluation so far, what was written to metrics.jsonl, and whether a
    signal has cut off an evaluation."""

    buffer: MetricBuffer
    stopping: EarlyStopping
    written: Written = dataclasses.field(default_factory=Written)
    evaluation_due: bool = False

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {
            "window": self.buffer.sums,
            "best": self.stopping.state,
            "written": dataclasses.asdict(self.written),
            "evaluation_due": self.evaluation_due,
        }

    def restore(self, state: Mapping[str, Any]):
        """Goes on from the note of a checkpoint."""
        self.buffer.sums = dict(state["window"])
        self.stopping.state = state["best"]
        self.written.size, self.written.crc = state["written"]["size"], state["written"]["crc"]
        self.evaluation_due = state.get("evaluation_due", False)
