"""Texts that share rows: the loss, its gradient and what is said of every text are those of a row for each."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from small import text_batch

import tfm
from train.data import text_rows
from train.data.text_rows import Layout, Shape
from train.data.tokens import TokenizedTexts
from train.tasks import resolve
from train.tasks.choice.rows import Choices, ChoiceTokens
from train.tasks.choice.task import CHOICE
from train.tasks.classify.rows import Examples
from train.tasks.classify.task import CLASSIFY
from train.tasks.span.options import Span
from train.tasks.span.rows import Passages
from train.tasks.span.source import Answer, Question
from train.tasks.span.task import SPAN
from train.tasks.tag.rows import Pieces, Sentences
from train.tasks.tag.task import TAG
from train.text import tokenize

MODEL = tfm.Config(layers=2, heads=2, width=16, vocab=450, length=16, pad_vocab_to=8, classes=3, dropout=0.0)
SHAPE = (3, 3, 34)
NUMBERS = [3, 0, -1, 2, -1, -1, 1, 4, 5]  # in the places of three rows of three
LENGTHS = np.array([9, 3, 14, 5, 7, 1])


@pytest.fixture(scope="module")
def tokenizer():
    words = [f"w{n}" for n in range(40)]
    return tokenize.train(tokenize.schema.Tokenizer(kind="word", vocab=300), [" ".join(words)])


def texts(lengths, seed=0):
    ids = np.random.default_rng(seed).integers(6, 40, sum(lengths))
    return TokenizedTexts(ids, np.cumsum([0, *lengths]))


def classify_rows(tokenizer):
    return Examples([texts(LENGTHS), texts(LENGTHS[::-1] // 2, 1)], np.int32([0, 2, 1, 1, 0, 2]), 16, tokenizer)


def tag_rows(tokenizer):
    ids = list(texts(LENGTHS).split())
    firsts = [np.arange(0, len(sentence), 2) for sentence in ids]
    labels = [np.int32(places % 3) for places in firsts]
    pieces = Pieces(ids, firsts, 0)
    return Sentences([["w"] * len(places) for places in firsts], labels, pieces, tokenize.special_tokens(tokenizer), 16)


def span_rows(tokenizer):
    questions = [
        Question(str(n), f"w{n}", " ".join(f"w{n + i}" for i in range(size)), (Answer(f"w{n}", 0),) if n % 2 else ())
        for n, size in enumerate(LENGTHS)
    ]
    return Passages(questions, 18, Span(max_question=4), tokenizer, SimpleNamespace(progress=no_progress), "texts")


class no_progress:  # noqa: N801
    def __init__(self, *arguments):
        pass

    def __enter__(self):
        return lambda count: None

    def __exit__(self, *arguments):
        pass


def choice_rows(tokenizer):
    counts = np.array([3, 2, 3, 3, 2, 3])
    sizes = np.random.default_rng(2).integers(1, 5, counts.sum())
    tokens = ChoiceTokens(texts(LENGTHS // 3), texts(sizes, 3), np.cumsum([0, *counts]))
    return Choices(tokens, np.int32([0, 1, 2, 0, 1, 0]), 3, 16, tokenizer)


TASKS = {
    "classify": (CLASSIFY, classify_rows, tfm.classifier_specs, {}),
    "tag": (TAG, tag_rows, tfm.tagger_specs, {}),
    "span": (SPAN, span_rows, tfm.tagger_specs, {"classes": 2}),
    "choice": (CHOICE, choice_rows, tfm.classifier_specs, {"classes": 1}),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("classify", {}),
        ("classify", {"head": tfm.Head(pool="mean", features="mix")}),
        ("classify", {"head": tfm.Head(pool="last", causal=True)}),
        ("tag", {}),
        ("span", {}),
        ("choice", {}),
    ],
)
def test_shared_rows_are_rows_for_each(name, fields, fill, tokenizer):
    """Learned positions end before a shared row does; rows have padding, and places without a text."""
    task, rows_of, specs_of, own = TASKS[name]
    model, rows = dataclasses.replace(MODEL, length=18, **own, **fields), rows_of(tokenizer)
    params = fill(specs_of(model))
    length = SHAPE[2] * (3 if name == "choice" else 1)
    shared, alone = text_batch(rows, NUMBERS, (*SHAPE[:2], length)), text_batch(rows, NUMBERS)
    assert shared["tokens"].size < alone["tokens"].size

    def outcome(batch):
        def loss(params):
            sums = task.loss(params, model, batch, None)
            return sums["loss"], sums

        (total, sums), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
        arrays = {key: np.asarray(value) for key, value in sums.items()}
        return total, gradient, text_rows.by_text(batch, arrays, rows.text_fields, rows.length)

    (total, gradient, said), (expected, expected_gradient, expected_said) = map(outcome, (shared, alone))
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    for leaf, wanted in zip(*map(jax.tree.leaves, (gradient, expected_gradient)), strict=True):
        np.testing.assert_allclose(leaf, wanted, atol=1e-5 * max(1, np.abs(wanted).max()))
    for key in said.keys() - {"padding"}:
        np.testing.assert_allclose(said[key], expected_said[key], rtol=1e-5, atol=1e-5, err_msg=key)


@pytest.mark.parametrize(("name", "texts"), [("classify", 1), ("tag", 1), ("span", 1), ("choice", 3)])
def test_a_plan_has_the_shapes_of_batches(name, texts, tokenizer):
    """What train.plan compiles for, in shared rows and in rows of their own."""
    task, rows_of, _, _ = TASKS[name]
    rows = rows_of(tokenizer)
    run, _ = resolve.resolve([f"--task={name}", "--preset=bert-tiny", "--batch.length=16"], None, None)
    if name == "choice":
        run = dataclasses.replace(run, task=dataclasses.replace(run.task, choices=3))
    for shape in (Shape(*SHAPE)._replace(length=34 * texts), Shape(len(NUMBERS) * texts, 1, rows.length)):
        batch = text_batch(rows, NUMBERS, shape)
        layout = Layout(len(NUMBERS), shape, 16, 1.0)
        shapes = {field: layout.shape_of(spec) for field, spec in task.batch_spec(run).items()}
        assert shapes == {field: array.shape for field, array in batch.items()}
