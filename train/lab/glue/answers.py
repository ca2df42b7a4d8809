"""From rows of yes or no to the answers of a task: what its metrics compare, and what the server takes.

Kinds of tasks and their answers, by key:

    single, regression   row -> its class or value
    choice               question -> the choice whose "yes" is most probable
    answers              (passage, question, answer) -> 0 or 1
    entity               query -> the entity whose "yes" is most probable
"""

from collections.abc import Callable, Mapping, Sequence

from train.lab.glue.glue_rows import Answer, GlueRow, Key, LabelPrediction
from train.lab.glue.suites import GlueTask

Answers = dict[Key, Answer]


def predicted(task: GlueTask, rows: Sequence[GlueRow], predictions: Sequence[LabelPrediction]) -> Answers:
    """Rows and what `train.predict` says of each (`label`, `probabilities`) -> the answers of the model."""
    if task.kind in ("choice", "entity"):
        chances = [prediction["probabilities"].get("1", 0.0) for prediction in predictions]
        return _best(rows, chances)
    convert = _CONVERSIONS[task.kind]
    return {_key(row): convert(p["label"]) for row, p in zip(rows, predictions, strict=True)}


def gold(task: GlueTask, rows: Sequence[GlueRow]) -> Answers:
    """The right answers; of a query all entities that are right."""
    if task.kind == "choice":
        return _best(rows, [float(row["label"]) for row in rows])
    if task.kind == "entity":
        return {_key(row): row["answers"] for row in rows}
    return {_key(row): _CONVERSIONS[task.kind](row["label"]) for row in rows}


def constant(task: GlueTask, train_rows: Sequence[GlueRow]) -> LabelPrediction:
    """The prediction that is the same for every row: the most frequent class in training, or the mean."""
    if task.kind == "regression":
        return {"label": str(sum(float(row["label"]) for row in train_rows) / len(train_rows)), "probabilities": {}}
    counts = {label: sum(row["label"] == label for row in train_rows) for label in task.labels}
    shares = {label: count / len(train_rows) for label, count in counts.items()}
    return {"label": max(counts, key=lambda label: counts[label]), "probabilities": shares}


def _best(rows: Sequence[GlueRow], chances: Sequence[float]) -> Answers:
    """The candidate of each question with the best chance, the first of equals."""
    best: dict[int, tuple[float, int | str]] = {}
    for row, chance in zip(rows, chances, strict=True):
        idx = row["idx"]
        key, candidate = idx if isinstance(idx, list) else (idx, row["entity"])
        if key not in best or chance > best[key][0]:
            best[key] = chance, candidate
    return {key: candidate for key, (_, candidate) in best.items()}


def _key(row: GlueRow) -> Key:
    idx = row["idx"]
    return tuple(idx) if isinstance(idx, list) else idx


_CONVERSIONS: Mapping[str, Callable[[str | float], Answer]] = {"single": str, "answers": int, "regression": float}
