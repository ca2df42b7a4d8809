"""Labels as arrays: the class of a text, its classes, or a value."""

import dataclasses
import math
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from train import UserError
from train.data.sources.files import Row
from train.settings.task_options import parsed_weights


@dataclasses.dataclass(frozen=True)
class Labels:
    """The labels of a data set.

    kind: single | multi | regression
    names: the classes, in the order of the model's outputs; none for regression
    """

    kind: str
    names: list[str]

    @classmethod
    def of(cls, kind: str, rows: Sequence[Row], columns: Sequence[str]) -> "Labels":
        """The classes that the rows name: numbers by value, then words by letter. Raises UserError for one class."""
        if len(columns) > 1 and kind != "multi":
            raise UserError(
                f"--data.label={','.join(columns)} names {len(columns)} columns; "
                f"--task.kind={kind} has one label a text"
            )
        if kind == "regression":
            return cls(kind, [])
        if len(columns) > 1:
            return cls(kind, list(columns))
        names = sorted({name for row in rows for name in _names(kind, row[columns[0]])}, key=_natural)
        if len(names) < 2 and kind == "single":
            raise UserError(f"every row is labelled {names[0]!r}; there must be two classes or more to tell apart")
        if not names:
            raise UserError(f"no row has a label in the column {columns[0]!r}; name another with --data.label=NAME")
        warn_of_one_name(names)
        return cls(kind, names)

    @property
    def outputs(self) -> int:
        """Number of outputs of the model for a text."""
        return len(self.names) or 1

    def encode(self, rows: Sequence[Row], columns: Sequence[str]) -> np.ndarray:
        """Classes int32 [N], ones and zeros float32 [N,C], or values float32 [N]. Raises UserError for other labels."""
        if self.kind == "regression":
            return np.array([float(row[columns[0]]) for row in rows], np.float32)
        if len(columns) > 1:
            if set(columns) != set(self.names):
                raise UserError(
                    f"the columns {_some(columns)} are not the classes of the model, {_some(self.names)}; "
                    "name those with --data.label=ONE,OTHER"
                )
            values = [[float(row[name]) for name in self.names] for row in rows]
            return np.array(values, np.float32).reshape(-1, self.outputs)
        index = {name: i for i, name in enumerate(self.names)}
        classes = [[self._index(index, name) for name in _names(self.kind, row[columns[0]])] for row in rows]
        if self.kind == "single":
            return np.array([row_classes[0] for row_classes in classes], np.int32)
        is_class = np.zeros((len(rows), self.outputs), np.float32)
        for row, row_classes in enumerate(classes):
            is_class[row, row_classes] = 1
        return is_class

    def _index(self, index: dict[str, int], name: str) -> int:
        if name not in index:
            raise UserError(
                f"the label {name!r} never occurs in the training data (it has {', '.join(self.names[:20])}); "
                "correct it"
            )
        return index[name]


def class_fields(classes: Sequence[str]) -> dict[str, object]:
    """The fields of config.json that name classes, in the order of their numbers."""
    numbers = {label: index for index, label in enumerate(classes)}
    return {"id2label": {str(index): label for index, label in enumerate(classes)}, "label2id": numbers}


def in_order_of_head(names: list[str], head: Sequence[str], log: Callable[[str], None], shared: str = "") -> list[str]:
    """The classes `names` of the data, in the order of a head that has them all, with the others of that head.

    Of a head that has none of them nothing is taken: they stay as they are. The class `shared` is one of every head.
    Raises UserError where the head has only some of them.
    """
    more = [name for name in head if name not in names]
    if names and set(names) <= set(head):
        if more:
            log(f"the head of --init also has the classes {_some(more)}, which the data never name")
        return list(head)
    if set(names) & set(head) <= {shared}:
        return names
    extra = f" and has {_some(more)} in their place" if more else ""
    raise UserError(
        f"the head of --init lacks the classes {_some([name for name in names if name not in head])} of the data"
        f"{extra}; rename them, or start a new head with --init-head=fresh"
    )


def warn_of_one_name(names: Sequence[str]) -> None:
    """Warns of classes that may be one: of equal numbers, or of names that differ in case or in marks nobody sees."""
    spelled: dict[object, str] = {}
    for name in names:
        visible = (mark for mark in unicodedata.normalize("NFKC", name) if unicodedata.category(mark) != "Cf")
        value = _number(name)
        is_exact = value is not None and abs(value) < 2**53
        first = spelled.setdefault(value if is_exact else " ".join("".join(visible).casefold().split()), name)
        if first != name:
            warnings.warn(
                f"the classes {first!r} and {name!r} count as two; write them in one way if they are one", stacklevel=2
            )
            return


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")


# Squares of larger values are not exact in float32, and their sum over a batch may be infinite.
MAX_VALUE = 1e9


def label_checker(kind: str, columns: Sequence[str]) -> Callable[[object], None]:
    """What raises ValueError for a value of a label column that is no label: of one class, of classes, or a number."""
    if kind == "regression":
        return _check_value
    return _check_decision if kind == "multi" and len(columns) > 1 else partial(_check_classes, kind)


def _check_value(label: object) -> None:
    """Raises ValueError for what is no finite number of a sane size."""
    value = _number(label)
    if value is None or not math.isfinite(value):
        raise ValueError(f"the label {label!r} is not a number; correct it, or choose another --task.kind")
    if abs(value) > MAX_VALUE:
        raise ValueError(f"the label {label!r} is beyond {MAX_VALUE:,.0f}; divide all values, or correct it")


def _check_decision(label: object) -> None:
    """Raises ValueError for what is neither 0 nor 1."""
    if _number(label) not in (0, 1):
        raise ValueError(f"the label {label!r} is neither 0 nor 1; correct it")


def _check_classes(kind: str, label: object) -> None:
    """Raises ValueError for what names no class; of several classes there may be none, and a list names them."""
    several = kind == "multi"
    for name in label if several and isinstance(label, list) else [label]:
        word = str(name).strip().lower() if isinstance(name, str | int | float) else "nan"
        if word == "nan" or not (word or several):
            raise ValueError(f"the label {name!r} names no class; correct it, or leave the row out")


def _number(label: object) -> float | None:
    """The number that a label is or says; None of any other label, and of 1_5, which is 15 in Python alone."""
    if isinstance(label, str) and "_" in label:
        return None
    try:
        return float(label) if isinstance(label, str | int | float) else None
    except (ValueError, OverflowError):
        return None


class LossFields(NamedTuple):
    """How rows count in the loss.

    class_weights: a factor for the rows of each class, float32 [C]; none: all count the same
    smoothing: probability that is divided among all classes
    focal: exponent by which rows that are classified well count less
    generative: factor of the loss of the next tokens
    kind: the name of a loss, where a task has several
    """

    class_weights: np.ndarray | None = None
    smoothing: float = 0.0
    focal: float = 0.0
    generative: float = 0.0
    kind: str = ""

    def fields(self, labels: np.ndarray, is_row: np.ndarray) -> dict[str, np.ndarray]:
        """labels [B,...], is_row [B] -> float32 [B]: `weights`, 0 for an empty row; the others if set, and 1 with the
        name of the kind."""
        weights = is_row.astype(np.float32)
        if self.class_weights is not None:
            weights = weights * self.class_weights[labels]
        options = {"smoothing": self.smoothing, "focal": self.focal, "generative": self.generative}
        options |= {self.kind: 1.0} if self.kind else {}
        shares = {name: np.full(len(weights), value, np.float32) for name, value in options.items() if value}
        return {"weights": weights, **shares}


def class_weights(choice: str, labels: np.ndarray, names: Sequence[str]) -> np.ndarray | None:
    """The weights of `--task.class-weights` for int labels [N] of these classes, float32 [C]; None for equal ones.

    Balanced weights are N / (C * count of the class), as in scikit-learn: all classes weigh the same, and a row weighs
    1 on average. Raises UserError for another count of weights than of classes.
    """
    weights = parsed_weights(choice)
    if weights is None:
        return None
    if weights == "balanced":
        counts = np.bincount(labels, minlength=len(names))
        return (len(labels) / (len(names) * np.maximum(counts, 1))).astype(np.float32)
    if len(weights) != len(names):
        raise UserError(
            f"--task.class-weights={choice} has {len(weights)} weights for {len(names)} classes "
            f"({', '.join(names[:20])}); write one for each, in this order"
        )
    return np.array(weights, np.float32)


def _names(kind: str, label: object) -> list[str]:
    """The classes in a cell: one, or a list, or several joined by commas."""
    if kind == "single":
        return [class_name(label)]
    cells = label if isinstance(label, list) else str(label).split(",")
    return [name for cell in cells if (name := class_name(cell))]


def class_name(label: object) -> str:
    """The name of a class: a word, a number or true; 1.0, as tables with empty cells have it, is 1."""
    if isinstance(label, bool):
        return str(label).lower()
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label).strip()


def _natural(name: str) -> tuple[int, float, str]:
    """A sort key: numbers by value, before words by letter."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name
