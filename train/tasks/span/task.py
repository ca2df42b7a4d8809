"""Answers to questions, which are places in a passage (Devlin et al. 2018, section 4.2 and 4.3).

A row of 13 places, which has room for another question (`train.data.text_rows`):

    tokens      [CLS] who runs ? [SEP] today Ann Lee runs . [SEP] [PAD] [PAD]    what the model reads
    types         0    0   0   0   0     1    1   1   1   1   1     0     0      the window has type 1
    segments      1    1   1   1   1     1    1   1   1   1   1     0     0      which window of the row; 0 is padding
    positions     0    1   2   3   4     5    6   7   8   9  10     0     0      restart at every window
    candidates    1    0   0   0   0     1    1   1   1   1   0     0     0      where an answer may start and end
    starts        6                                                              place of its first token; 0 for none
    ends          7                                                              place of its last token; 0 for none
    rows         17                                                              the number of the window, -1 for none
    weights       1                                                              0 for no window

A window without the whole answer has none, and points to [CLS].
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tfm
from train.data import text_rows
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.processors import TOKENIZER
from train.data.sources import files, sources
from train.files import cache
from train.metrics import squad
from train.screens import plots
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.record import HfSource, Saved, Task
from train.tasks.span.loss import loss
from train.tasks.span.options import Span
from train.tasks.span.predict import PREDICTOR, Answers, search
from train.tasks.span.questions import generate
from train.tasks.span.rows import LOST, Passages
from train.tasks.span.source import Question, Squad, may_abstain, questions_of
from train.text import tokenize


def specs(run: Run[Span]) -> tfm.Tagger:
    """The parameters of the run's model."""
    return tfm.tagger_specs(run.model)


def batch_spec(run: Run[Span]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    tokens = Field("BT", np.int32, counts_tokens=True)
    by_token = dict.fromkeys(("types", "candidates"), Field("BT", np.int32))
    answers = dict.fromkeys(("starts", "ends"), Field("B", np.int32, predicts="T"))
    weights = {"weights": Field("B", np.float32, weighs=True)}
    return {"tokens": tokens, **by_token, **text_rows.fields(), **answers, **weights}


def metrics(sums: Mapping[str, Any]) -> dict[str, float]:
    """Means from sums: loss, accuracy (windows with the right start and end), share of padding."""
    weight = max(sums["weight"], 1)
    return {"loss": sums["loss"] / weight, "accuracy": sums["right"] / weight, "padding": sums["padding"] / weight}


def corpus_metrics(
    outputs: Mapping[str, np.ndarray], corpus: Corpus[Passages], during_training: bool = False
) -> dict[str, float]:
    """Exact match and F1 of the answers to all questions whose windows were all read, as SQuAD measures them.

    With questions without an answer also those of the two kinds of questions, and the best thresholds for the answers
    that would be given without a threshold.
    """
    answers = _answers(outputs, corpus)
    golds = {name: texts for name, texts in corpus.valid.golds.items() if name in answers}
    predictions = {name: answer.chosen.text for name, answer in answers.items()}
    if not corpus.facts()["unanswerable"]:
        return squad.evaluate_v1(golds, predictions)
    texts = {name: answer.first.text for name, answer in answers.items()}
    odds = {name: answer.no_answer for name, answer in answers.items()}
    best = squad.evaluate_v2(golds, texts, odds)
    return squad.evaluate_v2(golds, predictions) | {name: best[name] for name in best if name.startswith("best_")}


def _answers(outputs: Mapping[str, np.ndarray], corpus: Corpus[Passages]) -> dict[str, Answers]:
    """The answers to the questions whose windows are among the outputs, by id."""
    starts, ends = (dict(enumerate(outputs[name])) for name in ("start_logits", "end_logits"))
    passages, options = corpus.valid, corpus.run.task
    results = search(passages, starts, ends, options, corpus.facts()["unanswerable"])
    return {passages.questions[question].id: answers for question, answers in results}


def evaluation_files(outputs: Mapping[str, np.ndarray], corpus: Corpus[Passages]) -> dict[str, dict[str, Any]]:
    """What train.evaluate writes, by its flag: the answer to every question (`to`), and the n best ones (`nbest`)."""
    answers = _answers(outputs, corpus)
    return {
        "to": {name: answer.chosen.text for name, answer in answers.items()},
        "nbest": {name: [best._asdict() for best in answer.best] for name, answer in answers.items()},
    }


def load(run: Run[Span], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[Passages]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training questions if --eval-data names others for validation.
    """
    train, valid = _questions(run, log, valid_only)
    tokenizer = saved.processor if saved else tokenize.load(run.tokenizer, _distinct_texts(train), log)

    def rows(questions: Sequence[Question], name: str) -> Passages:
        return Passages(questions, run.batch.length, run.task, tokenizer, log, name)

    train_rows = [rows(train, "training passages")] if train else []
    lost = int((train_rows[0].answers[:, 0] == LOST).sum()) if train_rows else 0
    if lost:
        log.info(f"{lost:,} training questions are left out: their answers have no token")
    answers = [f"{answer.start} {answer.text}" for question in (*train, *valid) for answer in question.answers]
    facts = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(*(_distinct_texts(part) for part in (train, valid)), answers),
        "segmentation_hash": "",
        "questions": len(train),
        "unanswerable": may_abstain(run, saved.facts if saved else {}, [*train, *valid]),
    }
    sizes = {"vocab": tokenizer.get_vocab_size(), "classes": 2}
    return Corpus(run, tokenizer, train_rows, rows(valid, "validation passages"), sizes, facts)


def _questions(run: Run[Span], log: Log, valid_only: bool) -> tuple[list[Question], list[Question]]:
    """Questions to train on and for validation. Raises UserError for ids and answers that are wrong."""
    data, repair = run.data, run.task.repair
    train, valid = sources.load(data, Squad(), _builtin, log.info, valid_only)
    if data.eval:
        return questions_of(train, data.source, repair), questions_of(valid, data.eval, repair)
    questions = questions_of([*train, *valid], data.source, repair)
    return questions[: len(train)], questions[len(train) :]


def _builtin() -> tuple[list[files.Row], list[files.Row]]:
    """The built-in questions."""
    train, valid = generate()
    return tuple([Squad().checked(row, "builtin") for row in rows] for rows in (train, valid))  # type: ignore[return-value]


def _distinct_texts(questions: Sequence[Question]) -> list[str]:
    """Passages and questions."""
    return list(dict.fromkeys(text for question in questions for text in (question.context, question.text)))


def baselines(corpus: Corpus[Passages]) -> dict[str, float]:
    """`n`: the number of validation questions; `no_answer`: the share of them that has none."""
    questions = corpus.valid.questions
    return {"n": len(questions), "no_answer": sum(not question.answers for question in questions) / len(questions)}


def report(
    params: tfm.Tagger,
    run: Run[Span],
    corpus: Corpus[Passages],
    log: Log,
    outcomes: Mapping[str, np.ndarray],
    folder: Path,
):
    """Prints ten validation questions with their answers, and draws plots/answers.png."""
    answers = _answers(outcomes, corpus)
    questions = [question for question in corpus.valid.questions if question.id in answers]
    for question in questions[:: max(1, len(questions) // 10)][:10]:
        answer = answers[question.id].chosen
        golds = list(dict.fromkeys(question.golds)) or [""]
        right = max(squad.exact_match(answer.text, gold) for gold in golds)
        correction = "" if right else f" (right: {_shown(golds[0])})"
        log.info(f"{question.text} {_shown(answer.text)} {answer.probability:.4f}{correction}")
    texts = {question.id: question.golds for question in questions}
    exact, _ = squad.raw_scores(texts, {name: answers[name].chosen.text for name in texts})
    lengths = [len(members[0].split()) if members else 0 for members in texts.values()]
    odds = [answers[name].no_answer for name in texts]
    plots.answers(lengths, list(exact.values()), odds, run.task.null_threshold, folder)


def _shown(text: str) -> str:
    """An answer on one line."""
    return " ".join(text.split()) or "(no answer)"


def hf_run_values(head: str, folder: HfSource) -> dict[str, Any]:
    """Options of a run that could have trained a Hugging Face model; `folder` has its `fields` and `processor`."""
    return {"batch.length": 384}


SPAN = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "accuracy": max, "exact_match": max, "f1": max},
    baselines=baselines,
    report=report,
    processor=TOKENIZER,
    next_commands=(
        "predict --run={folder} --question='YOUR QUESTION' --text='YOUR PASSAGE'",
        "evaluate --run={folder} --data=YOUR.json --to=predictions.json",
    ),
    corpus_metrics=corpus_metrics,
    predictor=PREDICTOR,
    evaluate_flags=("to", "nbest"),
    evaluation_files=evaluation_files,
    hf_heads=("span",),
    hf_run_values=hf_run_values,
)
