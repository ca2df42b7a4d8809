"""Cross-encoders: losses against loops, passages of other rows, and whole runs."""

import json

import jax
import numpy as np
import pytest
from small import call, run, write_rows

from train import UserError, predict
from train.data.sources.files import Columns
from train.lab.retrieval.measures import measure
from train.main import main
from train.metrics.ranking import lists_of, ranking_metrics
from train.tasks.rank import source
from train.tasks.rank.loss import grade_losses, share_losses
from train.tasks.rank.options import Rank

pytestmark = pytest.mark.usefixtures("in_home")

SMALL = (
    "--task=rank --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.scan=true "
    "--tokenizer.vocab=300 --batch.size=8 --batch.length=16 --model.dropout=0 --model.init-std=0.1 "
    "--data.field=query,passage,negative --task.kind=bce --task.drawn=0 "
    "--log.every=10 --eval.every=200 --checkpoint.every=200 --optim.rate=5e-3 --steps=200"
).split()
ANIMALS = "cat dog cow pig hen fox owl bee".split()


def rows(count, seed):
    """Queries about an animal, a passage on it, and one on another, which is blank now and then."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        right, wrong = rng.permutation(ANIMALS)[:2]
        negative = f"the {wrong} ran" if rng.random() < 0.8 else ""
        yield {"query": f"where is the {right}", "passage": f"a {right} sat", "negative": negative}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Lists to train on and to validate on."""
    folder = tmp_path_factory.mktemp("home")
    for name, count, seed in (("train", 200, 0), ("dev", 40, 1)):
        lists = list(rows(count, seed))
        write_rows(folder / f"{name}.jsonl", lists)
    return folder


@pytest.fixture(scope="module")
def trained(home):
    """The result of a run on lists."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        run(*SMALL, "--data=train.jsonl", "--eval-data=dev.jsonl", "--out=whole")
    return json.loads((home / "whole" / "result.json").read_text())


# Losses and metrics


def some_lists(seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(5, 12)).astype(np.float32)
    grades = rng.integers(0, 2, (5, 12)).astype(np.float32)
    present = np.arange(12) < np.array([[12], [3], [11], [1], [5]])
    grades[:, 0] = 1
    return scores, grades, present


def test_losses_are_those_of_loops():
    """An absent passage has no part, whatever its score."""
    scores, grades, present = some_lists()
    scores = np.where(present, scores, -1e9).astype(np.float32)
    of_grades, of_shares = (np.asarray(jax.jit(loss)(scores, grades, present)) for loss in (grade_losses, share_losses))
    for row in range(len(scores)):
        s, g = (np.float64(array[row][present[row]]) for array in (scores, grades))
        p = 1 / (1 + np.exp(-s))
        np.testing.assert_allclose(of_grades[row], -(g * np.log(p) + (1 - g) * np.log(1 - p)).mean(), rtol=1e-5)
        logprobs = s - np.log(np.exp(s).sum())
        np.testing.assert_allclose(of_shares[row], -(g / g.sum() * logprobs).sum(), rtol=1e-5, atol=1e-6)


def test_metrics_are_those_of_a_ranking():
    """`measure` of train.retrieve is compared with pytrec_eval elsewhere."""
    scores, grades, present = some_lists()
    expected = [
        measure(
            {f"p{c}": scores[row, c] for c in np.flatnonzero(present[row])},
            {f"p{c}": grades[row, c] for c in np.flatnonzero(present[row])},
        )
        for row in range(len(scores))
    ]
    for name, value in ranking_metrics(scores, grades, present).items():
        assert value == pytest.approx(np.mean([metrics[name] for metrics in expected])), name
    flat = np.zeros(scores.shape, np.float32)
    assert ranking_metrics(flat[:1], grades[:1], present[:1])["mrr_10"] < 1, "of equal scores the worst comes first"


def test_pairs_of_a_query_are_a_list():
    lists = lists_of(np.array([7, 2, 7, 2, 2]), np.array([1.0, 2, 3, 4, 5]), np.arange(5))
    assert [array.tolist() for array in lists] == [
        [[2, 4, 5], [1, 3, 0]],
        [[1, 3, 4], [0, 2, 0]],
        [[True, True, True], [True, True, False]],
    ]


# Rows

TEXTS = Columns(("query", "passage", "negative"))


def test_passages_of_a_row():
    """Blank ones are none; the first is right."""
    examples = [
        {"query": "a", "passage": "b", "negative": "c"},
        {"query": "d", "passage": "e", "negative": " "},
    ]
    chosen = source.candidates(examples, TEXTS, Rank())
    assert [array.tolist() for array in chosen] == [[0, 0, 1], [0, 1, 2], [1, 0, 1]]
    graded = [row | {"label": label} for row, label in zip(examples, ["4 2", [3, 0]], strict=True)]
    task = Rank(kind="lambda", scale=2)
    assert source.candidates(graded, TEXTS._replace(labels=("label",)), task).grades.tolist() == [2, 1, 1.5]
    with pytest.raises(UserError, match=r"a grade is 4, and those of --task.kind=bce .* say --task.scale=4"):
        source.candidates(graded, TEXTS._replace(labels=("label",)), Rank())


def test_others_are_first_passages_of_rows_that_differ():
    own = source.RowPassages(np.array([0, 0, 1, 2, 3]), np.array([0, 1, 2, 4, 6]), np.float32([1, 0, 1, 1, 1]))
    queries, firsts = np.array([0, 1, 0, 2]), np.array([5, 6, 7, 6])
    chosen = source.with_drawn(own, queries, firsts, columns=2, count=50)
    for row, allowed in ((0, {2, 6}), (1, {0, 4}), (2, {2, 6}), (3, {0, 4})):
        places = chosen.places[chosen.rows == row]
        count = int((own.rows == row).sum())
        assert places[:count].tolist() == own.places[own.rows == row].tolist(), "those of the row stand first"
        assert sorted(places[count:].tolist()) == sorted(allowed), "each of them once"
        assert not chosen.grades[chosen.rows == row][count:].any()


# Runs


@pytest.mark.slow
def test_learns_and_predicts(trained, home):
    assert trained["eval_ndcg_10"] > 0.97
    assert trained["eval_accuracy"] > 0.95
    code, out, err = call(predict.main, "--run=whole", "--text=where is the cow", "--pair=a cow sat")
    assert code == 0, err
    wrong = call(predict.main, "--run=whole", "--text=where is the cow", "--pair=the fox ran")[1]
    assert 0 <= float(wrong) < float(out) <= 1


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--data.field=query", "data.field=query must name a query and a passage"),
        ("--data.field=query,passage --task.kind=softmax", "task.kind=softmax compares the passages of a row"),
        ("--data.field=query,passage --task.graded=false", "leaves one right passage a row"),
        ("--task.scale=0", "task.scale=0.0 must be more than 0"),
        ("--data.field=query,answer,negative", "no text column 'answer'"),
        ("--data=builtin --task.graded=true", "built-in questions have query,passage,negative and no grades"),
    ],
)
def test_bad_input(flags, says, home):
    code, out, err = call(main, *SMALL, "--data=train.jsonl", "--eval-data=dev.jsonl", "--out=bad", *flags.split())
    assert (code, out) == (2, "")
    assert says in err
    assert not (home / "bad").exists()
