"""Rows of tasks in one form, the answers to them, and what a model says of a row."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

# The index of a row for the server: one number, or those of passage, question and answer.
Key = int | tuple[int, ...]

# A class or a value; of a choice its number; of a query an entity, or all entities that are right.
Answer = str | float | list[str]


class GlueRow(TypedDict, total=False):
    """A row to train on or to answer.

    text, pair: the text, or both of a pair
    label: the class or the value; absent in test sets
    idx: the index of the row; of MultiRC those of passage, question and answer, of COPA that of the question and choice
    entity: the entity in the gap of a query (ReCoRD)
    answers: the entities that are right (ReCoRD)
    """

    text: str
    pair: str
    label: str | float
    idx: int | list[int]
    entity: str
    answers: list[str]


class LabelPrediction(TypedDict):
    """What train.predict says of a row: its class or value, and the probabilities of classes."""

    label: str
    probabilities: dict[str, float]


def texts_of(cells: Mapping[str, str], columns: Sequence[str]) -> GlueRow:
    """The text in the first column, or the texts of a pair in the first two."""
    first, *second = columns
    return {"text": cells[first], "pair": cells[second[0]]} if second else {"text": cells[first]}
