"""What a checkpoint holds besides the training state."""

import dataclasses
from typing import Annotated, TypedDict

from tfm.options.choices import Range
from train.runs.metrics_lines import Written
from train.settings.gate import check_complete
from train.training.early_stopping import BestEvaluation, EarlyStopping
from train.training.metric_buffer import MetricBuffer

_Bits = Annotated[int, Range(0, 1 << 62)]


class _Lines(TypedDict):
    """What was written to metrics.jsonl."""

    size: _Bits
    crc: _Bits


class _Note(TypedDict):
    """What a checkpoint notes."""

    window: dict[str, float]
    best: BestEvaluation
    written: _Lines
    evaluation_due: bool


@dataclasses.dataclass
class Progress:
    """The sums since the last log line, the best evaluation so far, what was written to metrics.jsonl, and whether a
    signal has cut off an evaluation."""

    buffer: MetricBuffer
    stopping: EarlyStopping
    written: Written = dataclasses.field(default_factory=Written)
    evaluation_due: bool = False

    def state(self) -> dict[str, object]:
        """Plain values for a checkpoint."""
        return {
            "window": self.buffer.sums,
            "best": self.stopping.state,
            "written": dataclasses.asdict(self.written),
            "evaluation_due": self.evaluation_due,
        }

    def restore(self, state: object):
        """Goes on from the note of a checkpoint. Raises ValueError for a note that no run has written."""
        values: _Note = check_complete("note", state, _Note)
        self.buffer.sums = values["window"]
        self.stopping.state = values["best"]
        self.written.size, self.written.crc = values["written"]["size"], values["written"]["crc"]
        self.evaluation_due = values["evaluation_due"]
