"""A task measured: its sentences as vectors, each once, and what the protocol of the task says of them."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypedDict

import numpy as np

from train import UserError
from train.lab.embedding.options import checked_vectors
from train.lab.sentences import protocol
from train.lab.sentences.rows import Dataset
from train.lab.sentences.settings import Settings
from train.lab.sentences.suite import INNER, KFOLD, SentEvalTask

Encode = Callable[[Sequence[str]], np.ndarray]


class LoadedTask(NamedTuple):
    """A task and its rows."""

    task: SentEvalTask
    data: Dataset


class MetricResult(TypedDict):
    """A metric, with the ends of its 95 % interval where it has one."""

    value: float
    low: float | None
    high: float | None


class _Measurements(TypedDict):
    protocol: str
    metrics: dict[str, MetricResult]
    constant: float
    rows: dict[str, int]
    size: int
    note: str
    seconds_encoding: float
    seconds: float


class SentEvalResult(_Measurements, total=False):
    """The result of a task.

    metrics: by name; the first is the score
    constant: the score of the most frequent class
    rows: of every part
    size: of the vectors
    note: in what the task differs from SentEval's
    data: the hash of the rows, in files
    """

    data: str


def measure(
    encode: Encode,
    loaded: LoadedTask,
    settings: Settings,
    advance: Callable[[int], None] = lambda fits: None,
) -> SentEvalResult:
    """The metrics of a task, and the seconds that they took.

    Raises UserError for bad vectors, and for fewer rows than folds.
    """
    task, data = loaded
    check_rows(loaded, settings)
    began = time.perf_counter()
    sentences = data.sentences()
    encoded = checked_vectors(encode(sentences), len(sentences))
    row_of = {sentence: row for row, sentence in enumerate(sentences)}
    vectors = {
        name: protocol.Vectors(
            encoded[[row_of[text] for text in rows.texts]],
            None if rows.pairs is None else encoded[[row_of[text] for text in rows.pairs]],
        )
        for name, rows in data.parts.items()
    }
    encoding = time.perf_counter() - began
    work = protocol.Work(task.name, vectors, data, task.features, settings, advance)
    metrics = protocol.PROTOCOLS[task.protocol](work)
    return {
        "protocol": task.protocol,
        "metrics": {name: {"value": m.value, "low": m.low, "high": m.high} for name, m in metrics.items()},
        "constant": protocol.majority(data),
        "rows": {name: len(rows.texts) for name, rows in data.parts.items()},
        "size": encoded.shape[1],
        "note": data.note,
        "seconds_encoding": round(encoding, 2),
        "seconds": round(time.perf_counter() - began, 2),
    }


def trainings(loaded: LoadedTask, settings: Settings) -> int:
    """How many classifiers are trained for a task, each with all strengths of the penalty at once."""
    folds = settings.kfold
    return {INNER: folds * (folds + 1), KFOLD: folds + 1}.get(loaded.task.protocol, 1)


def check_rows(loaded: LoadedTask, settings: Settings):
    """Raises UserError where folds, or what is held out of them, would have no rows."""
    task, data = loaded
    if task.protocol not in (INNER, KFOLD):
        return
    rows = next(iter(data.parts.values()))
    if len(rows.texts) < max(40, settings.kfold**2):
        raise UserError(
            f"{task.name} has {len(rows.texts)} rows, and {settings.kfold} folds need {max(40, settings.kfold**2)}; "
            "choose a smaller --classifier.kfold, or leave the task out"
        )
