"""Cross-encoders: losses against loops, passages of other rows, whole runs, and folders of sentence-transformers."""

import json

import jax
import numpy as np
import pytest
from small import call, run

from train import UserError, export, predict
from train.data.sources.files import Columns
from train.lab.retrieval.measures import measure
from train.lab.retrieve import main as retrieve
from train.main import main
from train.metrics.ranking import lists_of, ranking_metrics
from train.tasks.rank import source
from train.tasks.rank.loss import grade_losses, share_losses
from train.tasks.rank.options import Rank

pytestmark = pytest.mark.usefixtures("in_home")

SMALL = (
    "--task=rank --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.scan=true "
    "--tokenizer.vocab=300 --batch.size=8 --batch.length=16 --model.dropout=0 --model.init-std=0.1 "
    "--task.drawn=0 --log.every=10 --eval.every=200 --checkpoint.every=200 --optim.rate=5e-3 --steps=200"
).split()
ANIMALS = "cat dog cow pig hen fox owl bee".split()


def rows(count, seed):
    """Queries about an animal, a passage on it, and one on another, which is blank now and then."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        right, wrong = rng.permutation(ANIMALS)[:2]
        negative = f"the {wrong} ran" if rng.random() < 0.8 else ""
        yield {"query": f"where is the {right}", "passage": f"a {right} sat", "negative": negative}


def write_rows(path, examples):
    path.write_text("".join(json.dumps(row) + "\n" for row in examples))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Lists, the same as pairs with grades, and a folder of BEIR."""
    folder = tmp_path_factory.mktemp("home")
    for name, count, seed in (("train", 200, 0), ("dev", 40, 1)):
        lists = list(rows(count, seed))
        write_rows(folder / f"{name}.jsonl", lists)
        pairs = [
            {"query": row["query"], "passage": row[side], "label": grade}
            for row in lists
            for side, grade in (("passage", 5), ("negative", 0))
            if row[side]
        ]
        write_rows(folder / f"{name}_pairs.jsonl", pairs)
    (folder / "beir" / "qrels").mkdir(parents=True)
    write_rows(folder / "beir" / "corpus.jsonl", [{"_id": name, "text": f"the {name} sat"} for name in ANIMALS])
    write_rows(folder / "beir" / "queries.jsonl", [{"_id": f"q{name}", "text": f"the {name}"} for name in ANIMALS])
    (folder / "beir" / "qrels" / "test.tsv").write_text("".join(f"q{name}\t{name}\t1\n" for name in ANIMALS))
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["softmax", "listnet", "lambda"])
def test_kinds_of_losses_learn(trained, home, kind):
    run(*SMALL, f"--task.kind={kind}", "--task.drawn=2", "--data=train.jsonl", "--eval-data=dev.jsonl", f"--out={kind}")
    assert json.loads((home / kind / "result.json").read_text())["eval_ndcg_10"] > 0.9


@pytest.mark.slow
def test_pairs_with_grades(home):
    flags = "--data.field=query,passage --task.scale=5 --data=train_pairs.jsonl --eval-data=dev_pairs.jsonl --out=pairs"
    run(*SMALL, *flags.split())
    result = json.loads((home / "pairs" / "result.json").read_text())
    assert result["eval_spearman"] > 0.6
    assert result["eval_ndcg_10"] > 0.9, "pairs of a query are a list"


@pytest.mark.slow
def test_reranks(trained, home):
    """The passages of BM25 in the order of the model."""
    pytest.importorskip("bm25s")
    code, out, err = call(retrieve, "--data=beir", "--rerank=whole", "--rerank-depth=8", "--to=out.trec")
    assert code == 0, err
    result = json.loads(out)
    assert "ndcg_10" not in result
    assert {"bm25_ndcg_10", "rerank_ndcg_10"} <= result.keys()
    lines = [line.split() for line in (home / "out.trec").read_text().splitlines()]
    first = next(fields for fields in lines if fields[0] == "qcow" and fields[2] == "cow")
    score = call(predict.main, "--run=whole", "--text=the cow", "--pair=the cow sat")[1]
    assert float(first[4]) == pytest.approx(float(score), abs=1e-4)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--data.field=query", "data.field=query must name a query and a passage"),
        ("--data.field=query,passage --task.kind=softmax", "task.kind=softmax compares the passages of a row"),
        ("--data.field=query,passage --task.graded=false", "leaves one right passage a row"),
        ("--task.scale=0", "task.scale=0.0 must be more than 0"),
        ("--data.field=query,answer,negative", "no text column 'answer'"),
        ("--data=builtin --task.graded=true", "built-in questions have query,passage,negative and no grades"),
        (
            "--data=train_pairs.jsonl --eval-data=dev_pairs.jsonl --data.field=query,passage",
            "a grade is 5, and those of --task.kind=bce",
        ),
    ],
)
def test_bad_input(flags, says, home):
    code, out, err = call(main, *SMALL, "--data=train.jsonl", "--eval-data=dev.jsonl", "--out=bad", *flags.split())
    assert (code, out) == (2, "")
    assert says in err
    assert not (home / "bad").exists()


def test_only_a_cross_encoder_reranks(home):
    (home / "empty").mkdir(exist_ok=True)
    code, _, err = call(retrieve, "--data=beir", "--rerank=empty")
    assert code == 2
    assert "empty is not a run folder" in err


# Folders of sentence-transformers

PAIRS = [("where is the cow", "a cow sat"), ("where is the hen", "the fox ran"), ("cat " * 12, "dog " * 9)]


def scores_of(folder):
    """What train.predict says of the pairs."""
    with open("pairs.tsv", "w") as file:
        file.write("".join(f"{first.strip()}\t{second.strip()}\n" for first, second in [("query", "passage"), *PAIRS]))
    code, _, err = call(
        predict.main, f"--run={folder}", "--file=pairs.tsv", "--field=query,passage", "--to=scores.jsonl"
    )
    assert code == 0, err
    with open("scores.jsonl") as file:
        return [json.loads(line)["score"] for line in file]


@pytest.fixture(scope="module")
def exported(home):
    """A run whose first token stands for a pair, as in transformers, exported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        flags = "--model.head.pool=first --steps=20 --optim.rate=1e-2 --data=train.jsonl --eval-data=dev.jsonl"
        run(*SMALL, *flags.split(), "--out=first")
        code, _, err = call(export.main, "--run=first", "--to=exported")
    assert code == 0, err
    return home / "exported"


@pytest.mark.parity
@pytest.mark.slow
def test_folder_written_for_sentence_transformers(exported):
    library = pytest.importorskip("sentence_transformers")
    model = library.CrossEncoder("exported", device="cpu")
    expected = model.predict([(first.strip(), second.strip()) for first, second in PAIRS])
    np.testing.assert_allclose(scores_of("first"), expected, atol=1e-5)
    np.testing.assert_allclose(scores_of("exported"), expected, atol=1e-5)


@pytest.mark.parity
@pytest.mark.slow
@pytest.mark.parametrize("activation", ["Sigmoid", "Identity"])
def test_folder_of_sentence_transformers(exported, home, activation):
    """One that version 6 saves, and config.json of older ones alone."""
    library = pytest.importorskip("sentence_transformers")
    import torch

    model = library.CrossEncoder("exported", device="cpu", activation_fn=getattr(torch.nn, activation)())
    model.save(f"saved{activation}")
    pairs = [(first.strip(), second.strip()) for first, second in PAIRS]
    expected = model.predict(pairs)
    np.testing.assert_allclose(scores_of(f"saved{activation}"), expected, atol=1e-5)
    for name in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
        (home / f"saved{activation}" / name).unlink(missing_ok=True)
    path = home / f"saved{activation}" / "config.json"
    fields = json.loads(path.read_text())
    fields.pop("sentence_transformers", None)
    kind = "linear.Identity" if activation == "Identity" else "activation.Sigmoid"
    path.write_text(json.dumps(fields | {"sbert_ce_default_activation_function": f"torch.nn.modules.{kind}"}))
    np.testing.assert_allclose(scores_of(f"saved{activation}"), expected, atol=1e-5)
    path.write_text(json.dumps(fields | {"sbert_ce_default_activation_function": "torch.nn.Tanh"}))
    code, _, err = call(predict.main, f"--run=saved{activation}", "--text=a", "--pair=b")
    assert code == 2
    assert "the activation 'torch.nn.Tanh' of scores is not one of" in err
