"""Questions about passages: SQuAD's .json files (v1.1 and v2.0), .jsonl, and rows of TensorFlow datasets.

A row of .jsonl is {"id", "question", "context", "answers": {"text": [...], "answer_start": [...]}}. It may lack the id.
Answers may also be a list of {"text", "answer_start"}; a question without an answer has an empty one.
"""

import collections
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tfm.options import json_text
from train import UserError
from train.data.sources import files
from train.data.sources.files import Format, Row
from train.settings.gate import user_errors
from train.settings.schema import Data, Run
from train.tasks.span.options import Span


class Answer(NamedTuple):
    """A text, and the character of the passage at which it starts."""

    text: str
    start: int

    def stands_in(self, context: str) -> bool:
        """Whether the text is where it should be."""
        return context.startswith(self.text, self.start)


class Question(NamedTuple):
    """A question about a passage, and its answers: none where it has none, or where they are not known."""

    id: str
    text: str
    context: str
    answers: tuple[Answer, ...] = ()

    @property
    def golds(self) -> list[str]:
        """The texts of the answers."""
        return [answer.text for answer in self.answers]


class Squad(NamedTuple):
    """The `Reader` of questions; `labelled` says whether they must have answers."""

    labelled: bool = True
    texts: tuple[str, ...] = ("context", "question")
    labels: tuple[str, ...] = ("answers",)
    parallel: bool = False

    @property
    def formats(self) -> Mapping[str, Format]:
        """Files as SQuAD has them, and JSON lines."""
        return {".json": _articles, ".jsonl": _json_lines}

    def texts_of(self, row: Row) -> tuple[str, ...]:
        """Questions of an article, or about a passage, stay together."""
        return (row["group"],)

    def checked(self, row: Mapping[str, Any], where: str, remedy: str = "") -> Row:
        """{"question": Question, "group": ...} of a row. Raises UserError for a bad one."""
        identity = row.get("id")
        if identity not in (None, ""):
            where = f"{where}, question {identity!r}"
        for name in ("context", "question"):
            value = row.get(name)
            if not isinstance(value, str):
                raise UserError(
                    f"{where} has no text {name!r} (it has {', '.join(row)}); a row has a context, a question "
                    f"and answers{remedy}"
                )
            if not value.strip():
                raise UserError(f"{where} has an empty {name}; fill it, or leave the question out")
        answers = _answers(row, where) if self.labelled else ()
        question = Question("" if identity is None else str(identity), row["question"], row["context"], answers)
        return {"question": question, "group": str(row.get("title") or row["context"])}


def questions_of(rows: Sequence[Row], source: str, repair: bool = False) -> list[Question]:
    """The questions of a source; those without an id get their place in it, from 1.

    Raises UserError for an id that occurs twice, and for answers that are not where they should be. `repair` moves
    those to the nearest place that has their text.
    """
    questions = [row["question"] for row in rows]
    questions = [
        question if question.id else question._replace(id=str(index)) for index, question in enumerate(questions, 1)
    ]
    repeated = [name for name, count in collections.Counter(question.id for question in questions).items() if count > 1]
    if repeated:
        more = f", and so do {len(repeated) - 1:,} others" if len(repeated) > 1 else ""
        raise UserError(f"{source}: the id {repeated[0]!r} occurs more than once{more}; give every question its own")
    if repair:
        questions = [_repaired(question) for question in questions]
    misplaced = [question for question in questions if not all(a.stands_in(question.context) for a in question.answers)]
    if misplaced:
        question = misplaced[0]
        answer = next(answer for answer in question.answers if not answer.stands_in(question.context))
        more = f" ({len(misplaced):,} questions have such answers)" if len(misplaced) > 1 else ""
        remedy = "correct it" if repair else "correct it, or add --task.repair=true to take the nearest place"
        raise UserError(
            f"{source}: the answer {answer.text!r} of question {question.id!r} does not stand at "
            f"answer_start={answer.start} of its context{more}; {remedy}"
        )
    return questions


def _repaired(question: Question) -> Question:
    """The question with answers at the nearest places that have their texts; those that occur nowhere stay."""
    return question._replace(answers=tuple(_nearest(question.context, answer) for answer in question.answers))


def _nearest(context: str, answer: Answer) -> Answer:
    after = context.find(answer.text, answer.start)
    before = context.rfind(answer.text, 0, answer.start + len(answer.text))
    places = [place for place in (before, after) if place >= 0]
    return answer._replace(start=min(places, key=lambda place: abs(place - answer.start))) if places else answer


def _answers(row: Mapping[str, Any], where: str) -> tuple[Answer, ...]:
    """The answers of a row. Raises UserError for other values."""
    value = row.get("answers", [] if row.get("is_impossible") else None)
    if value is None:
        raise UserError(f'{where} has no answers; write "answers": [] if the passage does not answer it')
    if isinstance(value, Mapping):
        columns = [value[name] for name in ("text", "answer_start") if isinstance(value.get(name), list)]
        if len(columns) != 2 or len(columns[0]) != len(columns[1]):
            raise UserError(f"{where} has answers that are not as many texts as answer_starts; give both lists")
        value = [{"text": text, "answer_start": start} for text, start in zip(*columns, strict=True)]
    if not isinstance(value, list) or not all(_is_answer(answer) for answer in value):
        raise UserError(
            f'{where} has answers that are none; an answer is {{"text": "...", "answer_start": 0}}, its first character'
        )
    if value and row.get("is_impossible"):
        raise UserError(f"{where} has answers and says is_impossible; correct one of the two")
    return tuple(Answer(answer["text"], answer["answer_start"]) for answer in value)


def _is_answer(value: Any) -> bool:
    """Whether a value is a text and its first character."""
    if not isinstance(value, Mapping):
        return False
    text, start = value.get("text"), value.get("answer_start")
    return isinstance(text, str) and bool(text.strip()) and type(start) is int and start >= 0


def _articles(path: Path, text: str, data: Data, reader: Squad) -> Iterator[Row]:
    """The questions of a SQuAD file, in its order."""
    with user_errors():
        content = json_text.parse(text, str(path))
    rows = []
    for article_index, article in enumerate(_members(content, "data", f"{path}"), start=1):
        where = f"{path}, article {article_index}"
        for paragraph_index, paragraph in enumerate(_members(article, "paragraphs", where), start=1):
            where_paragraph = f"{where}, paragraph {paragraph_index}"
            for question in _members(paragraph, "qas", where_paragraph):
                if not isinstance(question, dict):
                    raise UserError(f"{where_paragraph} has a question that is no object; correct it")
                shared = {"context": paragraph.get("context"), "title": article.get("title")}
                rows.append(reader.checked({**question, **shared}, where_paragraph))
    yield from _grouped(rows)


def _members(value: Any, name: str, where: str) -> list[Any]:
    """A list of a SQuAD file. Raises UserError where it is none."""
    members = value.get(name) if isinstance(value, dict) else None
    if not isinstance(members, list):
        raise UserError(
            f"{where} has no list {name!r}, as files of SQuAD have; give such a file, or .jsonl with a question a line"
        )
    return members


def _json_lines(path: Path, text: str, data: Data, reader: Squad) -> Iterator[Row]:
    """A question a line."""
    yield from _grouped(list(files.json_lines(path, text, data, reader)))


def _grouped(rows: list[Row]) -> list[Row]:
    """Rows of one article alone are held together by their passages instead: some must be left for validation."""
    if len({row["group"] for row in rows}) > 1:
        return rows
    return [{**row, "group": row["question"].context} for row in rows]


def may_abstain(run: Run[Span], facts: Mapping[str, Any], questions: Sequence[Question] = ()) -> bool:
    """Whether a question may have no answer: as the run says, or one of the questions, or those of its training.

    Raises UserError for a question without an answer in v1.
    """
    unanswered = next((question.id for question in questions if not question.answers), None)
    if run.task.version == "v1" and unanswered is not None:
        raise UserError(f"question {unanswered!r} has no answer, as --task.version=v1 demands; leave the flag out")
    if run.task.version == "auto":
        return unanswered is not None or bool(facts.get("unanswerable"))
    return run.task.version == "v2"
