"""Folders of CrossEncoder of sentence-transformers, both ways; train.retrieve --rerank and /rerank ask them."""

import json

import numpy as np
import pytest
from small import call, run, write_rows

from train import export, predict
from train.lab.retrieve import main as retrieve

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_home")]

# The first token stands for a pair, as in transformers.
SMALL = (
    "--task=rank --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.scan=true "
    "--tokenizer.vocab=300 --batch.size=8 --batch.length=16 --model.dropout=0 --model.init-std=0.1 "
    "--model.head.pool=first --data=rows.jsonl --data.field=query,passage,negative --task.kind=bce --task.drawn=0 "
    "--log.every=10 --eval.every=20 --checkpoint.every=20 --optim.rate=1e-2 --steps=20"
).split()
ANIMALS = "cat dog cow pig hen fox owl bee".split()
PAIRS = [
    ("where is the cow", "a cow sat"),
    ("where is the hen", "the fox ran"),
    ("cat " * 11 + "cat", "dog " * 8 + "dog"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run, its export, and a folder of BEIR."""
    folder = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    pairs = [rng.permutation(ANIMALS)[:2] for _ in range(80)]
    write_rows(
        folder / "rows.jsonl",
        [{"query": f"where is the {a}", "passage": f"a {a} sat", "negative": f"the {b} ran"} for a, b in pairs],
    )
    (folder / "beir" / "qrels").mkdir(parents=True)
    write_rows(folder / "beir" / "corpus.jsonl", [{"_id": name, "text": f"the {name} sat"} for name in ANIMALS])
    write_rows(folder / "beir" / "queries.jsonl", [{"_id": f"q{name}", "text": f"the {name}"} for name in ANIMALS])
    (folder / "beir" / "qrels" / "test.tsv").write_text("".join(f"q{name}\t{name}\t1\n" for name in ANIMALS))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run(*SMALL, "--out=run")
        code, _, err = call(export.main, "--run=run", "--to=exported")
    assert code == 0, err
    return folder


def scores_of(folder):
    """What train.predict says of the pairs."""
    with open("pairs.jsonl", "w") as file:
        file.write("".join(json.dumps({"query": first, "passage": second}) + "\n" for first, second in PAIRS))
    code, _, err = call(
        predict.main, f"--run={folder}", "--file=pairs.jsonl", "--field=query,passage", "--to=scores.jsonl"
    )
    assert code == 0, err
    with open("scores.jsonl") as file:
        return [json.loads(line)["score"] for line in file]


@pytest.mark.parametrize("folder", ["run", "exported"])
def test_reranks(home, folder):
    """The passages of BM25 in the order of the model."""
    pytest.importorskip("bm25s")
    code, out, err = call(retrieve, "--data=beir", f"--rerank={folder}", "--rerank-depth=8", "--to=out.trec")
    assert code == 0, err
    result = json.loads(out)
    assert "ndcg_10" not in result
    assert {"bm25_ndcg_10", "rerank_ndcg_10"} <= result.keys()
    lines = [line.split() for line in (home / "out.trec").read_text().splitlines()]
    for name in ("cow", "hen"):
        written = {fields[2]: float(fields[4]) for fields in lines if fields[0] == "qcow"}
        score = call(predict.main, "--run=run", "--text=the cow", f"--pair=the {name} sat")[1]
        assert written[name] == pytest.approx(float(score), abs=1e-4)


def test_only_a_cross_encoder_reranks(home):
    (home / "empty").mkdir(exist_ok=True)
    code, _, err = call(retrieve, "--data=beir", "--rerank=empty", "--bm25=false", "--run=run")
    assert code == 2
    assert "empty" in err


@pytest.mark.parity
def test_folder_written_for_sentence_transformers(home):
    library = pytest.importorskip("sentence_transformers")
    expected = library.CrossEncoder("exported", device="cpu").predict(PAIRS)
    np.testing.assert_allclose(scores_of("run"), expected, atol=1e-5)
    np.testing.assert_allclose(scores_of("exported"), expected, atol=1e-5)


@pytest.mark.parity
@pytest.mark.parametrize("activation", ["Sigmoid", "Identity"])
def test_folder_of_sentence_transformers(home, activation):
    """One that version 6 saves, then config.json of older ones alone; and the answers of a server."""
    library = pytest.importorskip("sentence_transformers")
    import torch

    folder = f"saved{activation}"
    model = library.CrossEncoder("exported", device="cpu", activation_fn=getattr(torch.nn, activation)())
    model.save(folder)
    expected = model.predict(PAIRS)
    np.testing.assert_allclose(scores_of(folder), expected, atol=1e-5)
    check_server(folder, model, activation)
    for name in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
        (home / folder / name).unlink(missing_ok=True)
    path = home / folder / "config.json"
    fields = json.loads(path.read_text())
    fields.pop("sentence_transformers", None)
    kind = "linear.Identity" if activation == "Identity" else "activation.Sigmoid"
    path.write_text(json.dumps(fields | {"sbert_ce_default_activation_function": f"torch.nn.modules.{kind}"}))
    np.testing.assert_allclose(scores_of(folder), expected, atol=1e-5)
    path.write_text(json.dumps(fields | {"sbert_ce_default_activation_function": "torch.nn.Tanh"}))
    code, _, err = call(predict.main, f"--run={folder}", "--text=a", "--pair=b")
    assert code == 2
    assert "sbert_ce_default_activation_function='torch.nn.Tanh', the activation of scores, is not one of" in err


def check_server(folder, model, activation):
    """/rerank says the order and the scores of the library; raw_scores are those before the activation."""
    pytest.importorskip("prometheus_client")
    pytest.importorskip("httpx")
    testclient = pytest.importorskip("starlette.testclient")
    from train.lab.serve.abilities import load
    from train.lab.serve.app import Server
    from train.lab.serve.engine import Engine
    from train.lab.serve.options import ServeOptions
    from train.lab.serve.paths import PATHS
    from train.screens.console import Log

    texts = [f"the {name} sat" for name in ANIMALS]
    options = ServeOptions(run=folder, warm=False)
    served = load(folder, options, Log(quiet=True))
    assert "embed" not in served.abilities
    engine = Engine(served.works)
    engine.start()
    try:
        with testclient.TestClient(Server([served], options.body).application(PATHS)) as client:
            request = {"query": "where is the cow", "texts": texts, "return_text": True}
            rows = client.post("/rerank", json=request).json()
            raw = client.post("/rerank", json=request | {"raw_scores": True}).json()
    finally:
        engine.close()
    expected = model.rank(request["query"], texts, return_documents=True)
    assert [row["text"] for row in rows] == [row["text"] for row in expected]
    np.testing.assert_allclose([row["score"] for row in rows], [row["score"] for row in expected], atol=1e-5)
    values = np.array([row["score"] for row in raw])
    values = values if activation == "Identity" else 1 / (1 + np.exp(-values))
    np.testing.assert_allclose(values, [row["score"] for row in expected], atol=1e-5)
