"""Queries with passages to rank: the columns of a run, built-in questions, and passages of other rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from train import UserError
from train.data.sources.files import Columns, Row
from train.data.synthetic import deals
from train.data.tokens import TokenizedTexts, chosen_texts, contents_of, join_texts
from train.settings.schema import Run
from train.tasks.choice.rows import ChoiceTokens
from train.tasks.contrast.scores import check_scores, numbers_of
from train.tasks.contrast.source import QUESTIONS
from train.tasks.rank.options import Rank

# The largest grade of each kind; 2 to its power is a gain.
_MAX_GRADES = {"bce": 1.0, "lambda": 30.0}


class RowPassages(NamedTuple):
    """The passages of all rows that are there, in order, by their places in columns [rows, columns of passages].

    rows: the row of each, int [N]
    places: row times columns, and column, int [N]
    grades: float32 [N]
    """

    rows: np.ndarray
    places: np.ndarray
    grades: np.ndarray


def columns_of(run: Run[Rank]) -> Columns:
    """The columns of a run."""
    count = run.data.field.count(",")
    return Columns.of(run.data, run.task.is_graded(run.data.field), check_scores("grades", count))


def builtin(columns: Columns) -> tuple[list[Row], list[Row]]:
    """Built-in questions. Raises UserError for columns that they have not."""
    if columns.labels or not set(columns.texts) <= {*QUESTIONS}:
        raise UserError(
            f"--data.field={','.join(columns.texts)}: built-in questions have {','.join(QUESTIONS)} and no grades; "
            "name these, or give --data"
        )
    rows = deals.read()
    return rows.train, rows.valid


def usable(rows: Sequence[Row], columns: Columns) -> list[Row]:
    """The rows with a query and a first passage."""
    return [row for row in rows if all(text.strip() for text in columns.texts_of(row)[:2])]


def candidates(rows: Sequence[Row], columns: Columns, task: Rank) -> RowPassages:
    """The passages of the rows, of which blank ones are none, and their grades: those of the label, or 1 of the first.

    Raises UserError for a grade that the kind of loss cannot have.
    """
    names = columns.texts[1:]
    grades = np.zeros((len(rows), len(names)))
    if columns.labels:
        grades[:] = np.array(numbers_of(rows, columns.labels[0])).reshape(grades.shape) / task.scale
        _check_grades(grades, task)
    else:
        grades[:, 0] = 1
    is_there = np.array([[bool(row[name].strip()) for name in names] for row in rows], bool).reshape(grades.shape)
    places = np.flatnonzero(is_there)
    return RowPassages(places // len(names), places, grades.ravel()[places].astype(np.float32))


def _check_grades(grades: np.ndarray, task: Rank):
    """Raises UserError for grades below 0, and above the largest of the kind."""
    smallest, largest = grades.min(initial=0) * task.scale, grades.max(initial=0) * task.scale
    if smallest < 0 and task.kind != "listnet":
        raise UserError(f"a grade is {smallest:g}, and those of --task.kind={task.kind} are at least 0; add to all")
    limit = _MAX_GRADES.get(task.kind)
    if limit is not None and largest > limit * task.scale * (1 + 1e-6):
        raise UserError(
            f"a grade is {largest:g}, and those of --task.kind={task.kind} are at most {limit:g} times --task.scale; "
            f"say --task.scale={largest / limit:.3g}, or more"
        )


def with_drawn(own: RowPassages, queries: np.ndarray, firsts: np.ndarray, columns: int, count: int) -> RowPassages:
    """The passages of rows, and behind those of each the first passages of `count` other rows, of grade 0.

    They are drawn at random, the same ones each time, of rows that differ in query and first passage; a row has fewer
    where draws fail.

    queries, firsts: numbers of the queries and first passages of all rows, int [rows]: equal ones are of equal texts
    """
    rng, total = np.random.default_rng(0), len(queries)
    drawn = rng.integers(0, max(total, 1), (total, count))
    differs = (queries[drawn] != queries[:, None]) & (firsts[drawn] != firsts[:, None])
    differs &= np.array([[drawn[row, n] not in drawn[row, :n] for n in range(count)] for row in range(total)], bool)
    rows, draws = np.nonzero(differs)
    joined = RowPassages(
        np.concatenate([own.rows, rows]),
        np.concatenate([own.places, drawn[rows, draws] * columns]),
        np.concatenate([own.grades, np.zeros(len(rows), np.float32)]),
    )
    order = np.argsort(joined.rows, kind="stable")
    return RowPassages(*(array[order] for array in joined))


def read_candidates(
    rows: Sequence[Row], texts: Sequence[TokenizedTexts], columns: Columns, run: Run[Rank]
) -> tuple[ChoiceTokens, np.ndarray]:
    """The tokens of queries and of all their passages, and the grades, float32 [rows, passages of a row]; 0 of a
    passage that is not there.

    texts: the tokens of every column
    """
    chosen, count = candidates(rows, columns, run.task), len(columns.texts) - 1
    if run.task.drawn:
        numbers = contents_of(texts[:2], run.batch.length)
        chosen = with_drawn(chosen, numbers[:, 0], numbers[:, 1], count, run.task.drawn)
    # Column after column: the text of row r in column c is number c * rows + r.
    passages = join_texts(texts[1:])
    numbers = chosen.places % count * len(rows) + chosen.places // count
    sizes = np.bincount(chosen.rows, minlength=len(rows))
    firsts = np.cumsum([0, *sizes])
    grades = np.zeros((len(rows), run.task.candidates(run.data.field)), np.float32)
    grades[chosen.rows, np.arange(len(chosen.rows)) - firsts[chosen.rows]] = chosen.grades
    return ChoiceTokens(texts[0], chosen_texts(passages, numbers), firsts), grades
