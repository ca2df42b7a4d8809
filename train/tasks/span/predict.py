"""The best answers to questions, from the logits of all windows on their passages (Devlin et al. 2018, section 4.3)."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import tfm
from train import UserError
from train.data.reading import blocks, read_texts, say_fallback
from train.data.sources import files
from train.devices.compiling import jit_reading
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.predict import PredictOptions
from train.tasks.attended import joined
from train.tasks.record import AttendedRow, Folder, Prediction, Predictor
from train.tasks.span.loss import outputs
from train.tasks.span.options import Span
from train.tasks.span.rows import Passages
from train.tasks.span.source import Question, Squad, may_abstain, questions_of


class Answer(NamedTuple):
    """An answer: its text, its characters in the passage, its probability among the n best, and its two logits.

    No answer is the text "", with the logits of [CLS].
    """

    text: str
    start: int
    end: int
    probability: float
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """The sum of the logits."""
        return self.start_logit + self.end_logit


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a model answers a question.

    best: the answers, the most probable first; the text "" among them if there may be none
    no_answer: how much better no answer is than the best one, a difference of scores; -inf if there must be an answer
    threshold: the most that this may be for an answer
    """

    best: Sequence[Answer]
    no_answer: float
    threshold: float

    @property
    def first(self) -> Answer:
        """The best answer that is a text; "" where the passage has none."""
        return next((answer for answer in self.best if answer.text), _NOTHING)

    @property
    def chosen(self) -> Answer:
        """The answer: "" where the threshold says so."""
        if self.no_answer > self.threshold:
            return next((answer for answer in self.best if not answer.text), _NOTHING)
        return self.first


_NOTHING = Answer("", 0, 0, 0.0, 0.0, 0.0)


def search(
    passages: Passages,
    starts: Mapping[int, np.ndarray],
    ends: Mapping[int, np.ndarray],
    options: Span,
    abstains: bool,
) -> Iterator[tuple[int, Answers]]:
    """Logits [T] by row -> the index of every question whose rows are all there, and its answers.

    In each window the n best starts meet the n best ends, if both are in the passage, the answer is not too long, and
    the start has its most context in this window. `abstains` lets a question have no answer; its score is the smallest
    of all windows.
    """
    windows = passages.windows
    first_rows = np.searchsorted(windows.texts, np.arange(len(passages.questions) + 1)).tolist()
    for question, (first, after) in enumerate(itertools.pairwise(first_rows)):
        rows = range(first, after)
        if not all(row in starts for row in rows):
            continue
        spans = [
            _spans(passages, row, starts[row].astype(np.float64), ends[row].astype(np.float64), options) for row in rows
        ]
        nulls = [(float(starts[row][0]), float(ends[row][0])) for row in rows]
        best = _texts(passages, question, np.concatenate(spans), options.n_best)
        if abstains:
            yield question, _with_null(best, min(nulls, key=sum), options)
        else:
            yield question, Answers(_normalized(best), float("-inf"), options.null_threshold)


def _spans(passages: Passages, row: int, start_logits: np.ndarray, end_logits: np.ndarray, options: Span) -> np.ndarray:
    """The answers of one window, float64 [N,4]: the first and the last token, and their logits.

    They are in the order of their starts, then of their ends, the best of each first.
    """
    question, window_start, window_end = (int(array[row]) for array in passages.windows)
    inside = slice(place := int(passages.first_places[row]), place + window_end - window_start)
    start_logits, end_logits = start_logits[inside], end_logits[inside]
    firsts, lasts = (np.argsort(-logits, kind="stable")[: options.n_best] for logits in (start_logits, end_logits))
    has_context = passages.best[question][window_start:window_end][firsts] == row
    lengths = lasts[None, :] - firsts[:, None] + 1
    i, j = np.nonzero((lengths >= 1) & (lengths <= options.max_answer) & has_context[:, None])
    tokens = (window_start + firsts[i], window_start + lasts[j])
    return np.stack([*tokens, start_logits[firsts[i]], end_logits[lasts[j]]], axis=1)


def _texts(passages: Passages, question: int, spans: np.ndarray, n_best: int) -> list[Answer]:
    """The best answers of different texts, still without probabilities."""
    context, passage = passages.questions[question].context, passages.passages[question]
    answers: dict[str, Answer] = {}
    for index in np.argsort(-(spans[:, 2] + spans[:, 3]), kind="stable"):
        first, last = spans[index, :2].astype(int)
        start, end = int(passage.starts[first]), int(passage.ends[last])
        if text := context[start:end]:
            answers.setdefault(text, Answer(text, start, end, 0.0, float(spans[index, 2]), float(spans[index, 3])))
        if len(answers) == n_best:
            break
    return list(answers.values())


def _with_null(best: list[Answer], logits: tuple[float, float], options: Span) -> Answers:
    """The answers with no answer among them; it stays even if it is worse than all, and so does the best text."""
    null = Answer("", 0, 0, 0.0, *logits)
    no_answer = null.score - best[0].score if best else float("inf")
    place = sum(answer.score >= null.score for answer in best)
    ranked = [*best[:place], null, *best[place:]][: max(options.n_best, place + 1, 2)]
    return Answers(_normalized(ranked), no_answer, options.null_threshold)


def _normalized(answers: Sequence[Answer]) -> list[Answer]:
    """The answers with probabilities: the softmax of their scores."""
    scores = np.array([answer.score for answer in answers])
    exponentials = np.exp(scores - scores.max(initial=-np.inf))
    probabilities = (exponentials / exponentials.sum()).tolist()
    return [answer._replace(probability=value) for answer, value in zip(answers, probabilities, strict=True)]


def prediction(question: Question, answers: Answers, abstains: bool) -> Prediction:
    """The answer as a line with tabs, and as an object."""
    answer = answers.chosen
    start, end = (answer.start, answer.end) if answer.text else (None, None)
    cells = [
        " ".join(answer.text.split()),
        f"{answer.probability:.4f}",
        *map(str, (start, end) if answer.text else ("", "")),
    ]
    row = {"id": question.id, "question": question.text, "answer": answer.text, "probability": answer.probability}
    row |= {"start": start, "end": end}
    if abstains:
        row["no_answer"] = next(best.probability for best in answers.best if not best.text)
    return Prediction("\t".join(cells), row | {"n_best": [best._asdict() for best in answers.best]})


def inputs(options: PredictOptions, folder: Folder) -> list[Question]:
    """The question about the text, or those of the file."""
    reader = Squad(labelled=False)
    if options.text:
        if not options.question:
            raise UserError("--text=PASSAGE needs a question about it: --question=QUESTION")
        return questions_of([reader.checked({"context": options.text, "question": options.question}, "--text")], "")
    if options.question:
        raise UserError(f"--question belongs to --text=PASSAGE; --file={options.file} has its own; leave it out")
    questions = questions_of(files.read(Path(options.file), folder.config.data, reader), options.file)
    if not questions:
        raise UserError(f"{options.file} holds no question; check the file, or choose another")
    return questions


def predict(
    params: tfm.Tagger, folder: Folder, questions: Sequence[Question], log: Log, batch: int
) -> Iterator[Prediction]:
    """The answer to each question: its text, probability among the n best, and characters; nothing for no answer."""
    run, abstains = folder.config, may_abstain(folder.config, folder.facts)
    passages = Passages(questions, run.batch.length, run.task, folder.processor, log, "passages")
    say_fallback(run.model, log)
    logits_of = partial(checked, _logits, params, run.model)
    starts: dict[int, np.ndarray] = {}
    ends: dict[int, np.ndarray] = {}
    with log.progress("answering", len(passages)) as advance:
        for block in blocks(len(passages), batch):
            logits = read_texts(logits_of, run.model, passages, block, batch, advance)
            starts |= zip(block, logits["start_logits"], strict=True)
            ends |= zip(block, logits["end_logits"], strict=True)
    for question, answers in search(passages, starts, ends, run.task, abstains):
        yield prediction(questions[question], answers, abstains)


@jit_reading(1)
def _logits(params, model: tfm.Config, batch):
    starts, ends = jnp.unstack(outputs(params, model, batch, None).logits, axis=1)
    return {"start_logits": starts, "end_logits": ends}


def attended(options: PredictOptions, folder: Folder) -> AttendedRow:
    """The question, and the text that has the answer."""
    return joined(folder, options.question, options.text)


PREDICTOR = Predictor(("question",), inputs, predict, attended)
