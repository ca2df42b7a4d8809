"""How fast a classifier labels the lines of a file, alone or in turns with a peer in another process."""

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from train import UserError
from train.costs.options import TRANSLATES, Options
from train.costs.writing import TrainedModel
from train.reporting.console import Log


def is_classifier(folder: Any) -> bool:
    """Whether a folder's model gives texts labels."""
    return folder.task.HF_HEADS == ("classify",)


class Labels:
    """The classes of texts, as train.predict says them: from texts to labels, tokenizing included.

    The members are those of `train.costs.writing.Continuations`; `tokens` are labels.
    """

    def __init__(self, options: Options):
        """Raises UserError for a run that gives texts no single label, and for lines that it does not read."""
        self.model = TrainedModel(options, writes="")
        folder = self.model.folder
        if options.against == TRANSLATES:
            raise UserError(f"--against={TRANSLATES} translates, and --run={options.run} classifies; choose torch")
        if folder.config.task.kind != "single":
            raise UserError(f"--run={options.run} gives a text no single label; choose another run")
        source = SimpleNamespace(text="", pair="", file=options.data, field="")
        self.texts = [text for text in folder.task.inputs(source, folder) if any(text.values())]
        self.batch = min(options.batch, len(self.texts))
        self.tokens: list[str] = []

    def facts(self) -> dict[str, Any]:
        """What is read, and how."""
        return {"texts": len(self.texts), "batch": self.batch}

    def seconds(self, passes: int) -> list[list[float]]:
        """The seconds of each pass."""
        folder, seconds = self.model.folder, []
        for _ in range(passes):
            start = time.perf_counter()
            predictions = folder.task.predict(self.model.params, folder, self.texts, Log(quiet=True), self.batch)
            self.tokens = [prediction.row["label"] for prediction in predictions]
            seconds.append([time.perf_counter() - start])
        return seconds

    def work(self) -> dict[str, Any]:
        """What a peer needs beside the model."""
        texts = [list(text.values()) for text in self.texts]
        return {"texts": texts, "batch": self.batch, "length": self.model.folder.config.batch.length}

    def alone(self, options: Options) -> dict[str, Any]:
        """The numbers without a peer."""
        return self.summary(np.array(self.seconds(1 + max(1, options.warmup // 3)))[1:])

    def summary(self, seconds: Sequence[Any] | np.ndarray) -> dict[str, float]:
        """Texts a second, the median over turns."""
        return {"texts_per_s": round(len(self.texts) / float(np.median(seconds)), 2)}
