"""Rows of multiple choice, in the forms of several data sets: a text, continuations of it, and which of them fits.

    lists     {"context" | "premise" | "question": ..., "choices": [...], "label": 1}; a context may have a question
    COPA      {"premise", "choice1", "choice2", "question": "cause" | "effect", "label": 0}    Roemmele et al. 2011
    SWAG      {"sent1", "sent2", "ending0", ..., "ending3", "label": 2}                        Zellers et al. 2018
    RACE      {"article", "question", "options": [...], "answer": "B"}                         Lai et al. 2017
    columns   --data.field=premise,first,second: the text, and a column for each continuation

Rows become {"context", "choices", "label"}; the label is a place, counted from 0, and absent where there is none.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from train import UserError
from train.data.sources.files import FORMATS, Format, Row
from train.settings.schema import Data

# What the columns of COPA ask, as Roemmele et al. put it.
_COPA = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
_CONTEXTS = ("context", "premise")
_DEFAULT = Data().field


class Question(NamedTuple):
    """A text, its continuations, and their names, by which a label may call them."""

    context: str
    choices: list[str]
    names: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class MultipleChoice:
    """Reads rows of multiple choice; `seen` counts the rows of every form.

    field: the columns of a text and of its continuations, or of a text and of a list of them; by default the form says
    label: the column of the label
    labelled: whether every row must have one
    """

    field: str
    label: str
    labelled: bool = True
    seen: Counter[str] = dataclasses.field(default_factory=Counter)

    parallel = False

    @classmethod
    def of(cls, data: Data, labelled: bool = True, field: str = "") -> "MultipleChoice":
        """The reader that `--data.field` and `--data.label` ask for; `field` in place of the former."""
        return cls(field or data.field, data.label, labelled)

    @property
    def texts(self) -> tuple[str, ...]:
        """The column of texts."""
        return ("context",)

    @property
    def labels(self) -> tuple[str, ...]:
        """The column of labels."""
        return ("label",)

    @property
    def formats(self) -> Mapping[str, Format]:
        """Tables and JSON lines."""
        return {name: read for name, read in FORMATS.items() if name != ".txt"}

    def texts_of(self, row: Row) -> tuple[str, ...]:
        """The text and its continuations."""
        return (row["context"], *row["choices"])

    def checked(self, row: Mapping[str, Any], where: str, remedy: str = "") -> Row:
        """The row as {"context", "choices", "label"}. Raises UserError for a row of no form, or a bad label."""
        form, read = self._form(row, where, remedy)
        question = read(row, where)
        if len(question.choices) < 2:
            raise UserError(
                f"{where} has a row with {len(question.choices)} continuations; "
                "there must be two or more to choose from"
            )
        blank = [place for place, choice in enumerate(question.choices) if not choice.strip()]
        if blank or not question.context.strip():
            part = f"continuation {blank[0]} is" if blank else "text is"
            raise UserError(f"{where} has a row whose {part} empty; fill it in, or leave the row out")
        self.seen[form] += 1
        checked = {"context": question.context, "choices": question.choices}
        name = "answer" if form == "RACE" and self.label not in row else self.label
        if not self.labelled:
            return checked
        if row.get(name) is None:
            raise UserError(f"{where} has a row without {name!r}; name the column of the label with --data.label=NAME")
        return checked | {"label": place_of(row[name], question, where)}

    def _form(self, row: Mapping[str, Any], where: str, remedy: str) -> tuple[str, Callable]:
        """The name of the row's form, and what reads it."""
        if self.field != _DEFAULT:
            return f"--data.field={self.field}", self._columns
        if {"1", "2", "3"} <= row.keys():  # a table without a header
            return "table", _numbered
        for name, columns, read in _FORMS:
            if columns <= row.keys():
                return name, read
        raise UserError(
            f"{where} has rows of no known form (they have {', '.join(row)}); name the text and its continuations with "
            f"--data.field=TEXT,FIRST,SECOND{remedy}"
        )

    def _columns(self, row: Mapping[str, Any], where: str) -> Question:
        """The columns of `--data.field`."""
        names = self.field.split(",")
        missing = [name for name in names if name not in row]
        if missing or len(names) < 2:
            fault = f"no column {missing[0]!r}" if missing else "no continuations there"
            raise UserError(
                f"--data.field={self.field}: {where} has {fault} (it has {', '.join(row)}); "
                "name a text and its continuations"
            )
        if len(names) == 2:
            return Question(_text(row, names[0], where), _list(row, names[1], where))
        return Question(_text(row, names[0], where), [_text(row, name, where) for name in names[1:]], names[1:])


def place_of(label: Any, question: Question, where: str) -> int:
    """The place of the continuation that a label names: by place, letter, name of its column, or text.

    Raises UserError for a label that names none, or that is the place of one and the text of another.
    """
    count = len(question.choices)
    if isinstance(label, bool) or not isinstance(label, int | str):
        raise UserError(f"{where} has the label {label!r}; it must be the place of a continuation, from 0, or its text")
    text = str(label).strip()
    places = {int(text)} if re.fullmatch(r"\d+", text) and int(text) < count else set[int]()
    if isinstance(label, str):
        texts = [choice.strip() for choice in question.choices]
        by_text = texts.index(text) if text in texts else None
        letters = [chr(ord("A") + place) for place in range(min(count, 26))]
        for names in (question.names, [] if places or by_text is not None else letters):
            places |= {names.index(text)} if text in names else set()
        places |= set() if by_text is None else {by_text}
    if len(places) == 1:
        return places.pop()
    if places:
        raise UserError(
            f"{where} has the label {label!r}, the place of a continuation and the text of another; "
            "write the place as a number in a .jsonl file"
        )
    raise UserError(
        f"{where} has the label {label!r}, which names none of its {count} continuations; "
        f"write its place, 0 to {count - 1}, or its text"
    )


def _copa(row: Mapping[str, Any], where: str) -> Question:
    """Two continuations; the question stands behind the text."""
    asked = _text(row, "question", where)
    if asked not in _COPA:
        raise UserError(f"{where} has the question {asked!r}; in COPA it is cause or effect")
    names = ["choice1", "choice2"]
    return Question(
        f"{_text(row, 'premise', where)} {_COPA[asked]}", [_text(row, name, where) for name in names], names
    )


def _swag(row: Mapping[str, Any], where: str) -> Question:
    """A sentence, and the beginning of the next, which every continuation completes."""
    names = sorted((name for name in row if re.fullmatch(r"ending\d", name)), key=lambda name: int(name[6:]))
    begin = _text(row, "sent2", where).strip()
    choices = [f"{begin} {_text(row, name, where)}".strip() for name in names]
    return Question(_text(row, "sent1", where), choices, names)


def _race(row: Mapping[str, Any], where: str) -> Question:
    """An article, and a question with each answer; an answer fills the blank of a question that has one."""
    question = _text(row, "question", where)
    options = _list(row, "options", where)
    blank = re.search(r"_+", question)
    answered = [
        f"{question[: blank.start()]}{option}{question[blank.end() :]}" if blank else f"{question} {option}"
        for option in options
    ]
    return Question(_text(row, "article", where), answered)


def _lists(row: Mapping[str, Any], where: str) -> Question:
    """A text and a list; where the text is a context with a question, the question begins every continuation."""
    choices = _list(row, "choices", where)
    contexts = [name for name in _CONTEXTS if name in row]
    if not contexts:
        return Question(_text(row, "question", where), choices)
    context = _text(row, contexts[0], where)
    if "question" not in row:
        return Question(context, choices)
    question = _text(row, "question", where)
    return Question(context, [f"{question} {choice}" for choice in choices], choices)


def _numbered(row: Mapping[str, Any], where: str) -> Question:
    """A table without a header: the text, its continuations, and the label last."""
    cells = [row[str(place)] for place in range(1, 1 + sum(name.isdigit() for name in row))]
    return Question(cells[0], cells[1:-1])


_FORMS: tuple[tuple[str, set[str], Callable], ...] = (
    ("COPA", {"premise", "choice1", "choice2", "question"}, _copa),
    ("SWAG", {"sent1", "sent2", "ending0", "ending1"}, _swag),
    ("RACE", {"article", "question", "options"}, _race),
    *(("lists", {name, "choices"}, _lists) for name in (*_CONTEXTS, "question")),
)


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    """A column of text."""
    if not isinstance(row[name], str):
        raise UserError(f"{where} has a row whose {name!r} is no text; correct it, or leave the row out")
    return row[name]


def _list(row: Mapping[str, Any], name: str, where: str) -> list[str]:
    """A column with a list of texts."""
    if not isinstance(row[name], list) or not all(isinstance(choice, str) for choice in row[name]):
        raise UserError(f"{where} has a row whose {name!r} is no list of texts; correct it, or leave the row out")
    return row[name]
