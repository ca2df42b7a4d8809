"""Labels as numbers: the class of a text, several classes of it, or a value."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from train import UserError
from train.data.sources.files import Row


@dataclasses.dataclass(frozen=True)
class Labels:
    """kind: single | multi | regression; names: the classes, in the order of the model's outputs; none for regression."""

    kind: str
    names: list[str]

    @classmethod
    def of(cls, kind: str, rows: Sequence[Row], columns: Sequence[str]) -> "Labels":
        """The classes that the rows name, numbers in their order and words in theirs. Raises UserError where there is only one."""
        if len(columns) > 1 and kind != "multi":
            raise UserError(
                f"--data.label={','.join(columns)} names {len(columns)} columns; --task.kind={kind} has one label a text"
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
        return cls(kind, names)

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for a text."""
        return len(self.names) or 1

    def encode(self, rows: Sequence[Row], columns: Sequence[str]) -> np.ndarray:
        """int32 [n] classes, float32 [n,C] ones and zeros, or float32 [n] values. Raises UserError for a label that cannot be one."""
        if self.kind == "regression":
            return np.array([_number(row[columns[0]]) for row in rows], np.float32)
        if len(columns) > 1:
            return np.array([[_number(row[name]) for name in columns] for row in rows], np.float32).reshape(
                -1, len(columns)
            )
        index = {name: number for number, name in enumerate(self.names)}
        found = [[self._index(index, name) for name in _names(self.kind, row[columns[0]])] for row in rows]
        if self.kind == "single":
            return np.array([numbers[0] for numbers in found], np.int32)
        ones = np.zeros((len(rows), self.outputs), np.float32)
        for row, numbers in enumerate(found):
            ones[row, numbers] = 1
        return ones

    def _index(self, index: dict[str, int], name: str) -> int:
        if name not in index:
            raise UserError(
                f"the label {name!r} never occurs in the training data (it has {', '.join(self.names[:20])}); correct it"
            )
        return index[name]


def _names(kind: str, label: Any) -> list[str]:
    """The classes in a cell: several may be a list, or joined by commas."""
    if kind == "single":
        return [_name(label)]
    cells = label if isinstance(label, list) else str(label).split(",")
    return [name for cell in cells if (name := _name(cell))]


def _name(label: Any) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label).strip()


def _number(label: Any) -> float:
    try:
        return float(label)
    except (TypeError, ValueError) as error:
        raise UserError(f"the label {label!r} is not a number; correct it, or choose another --task.kind") from error


def _natural(name: str) -> tuple[int, float, str]:
    """Numbers by value, before words by letters."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name
