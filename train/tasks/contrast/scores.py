"""The scores of a row: of its two texts, or of all candidates by a teacher."""

from collections.abc import Callable, Sequence

import numpy as np

from tfm.options import json_text
from train import UserError
from train.data.labels import label_checker
from train.data.sources.files import Row
from train.tasks.contrast.options import PAIR_SCORES, Contrast

_check_value = label_checker("regression", [])


def check_scores(kind: str, count: int) -> Callable[[object], None]:
    """What raises ValueError for a cell without the scores that a row of `count` candidates must have: of a kind with a
    teacher one for each, or, of margins, one for each wrong candidate."""
    if kind in PAIR_SCORES or count < 2:
        return _check_value

    def check(label: object) -> None:
        cells = _cells(label)
        for cell in cells:
            _check_value(cell)
        if len(cells) != count and not (kind == "margin" and len(cells) == count - 1):
            margins = f", or {count - 1} margins" if kind == "margin" else ""
            raise ValueError(f"the label {label!r} has {len(cells)} scores; a row has {count} candidates{margins}")

    return check


def scores_of(task: Contrast, rows: Sequence[Row], column: str, count: int) -> np.ndarray:
    """The scores of rows, divided by the scale: float32 [N] of pairs, [N,count] of candidates.

    Of margins, the right candidate has 0. Raises UserError for those that no cosines can have.
    """
    if task.kind in PAIR_SCORES:
        values = np.array([float(row[column]) for row in rows]) / task.scale
        largest = float(abs(values).max(initial=0) * task.scale)
        if task.kind == "scores" and largest > task.scale * (1 + 1e-6):
            raise UserError(f"a score is {largest:g}, and --task.scale={task.scale:g} says at most that; raise it")
        return values.astype(np.float32)
    cells = numbers_of(rows, column)
    values = np.array([row if len(row) == count else [0, *(-margin for margin in row)] for row in cells]) / task.scale
    values = values.reshape(len(rows), count)
    largest = float(abs(values[:, :1] - values[:, 1:]).max(initial=0))
    if task.kind == "margin" and largest > 2:
        raise UserError(
            f"a margin is {largest * task.scale:g}, and cosines differ by 2 at most; say "
            f"--task.scale={largest * task.scale:.3g}, or more"
        )
    return values.astype(np.float32)


def numbers_of(rows: Sequence[Row], column: str) -> list[list[float]]:
    """The numbers in the cell of each row."""
    return [[float(str(cell)) for cell in _cells(row[column])] for row in rows]


def _cells(label: object) -> Sequence[object]:
    """The numbers in a cell: a list, the text of one, words of a text, or a number."""
    if isinstance(label, str) and label.lstrip().startswith("["):
        label = json_text.parse(label, "a label")
    if isinstance(label, list):
        return label
    return label.split() if isinstance(label, str) else [label]
