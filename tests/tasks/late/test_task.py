"""Vectors of tokens: which of them score, a run that learns, rankings and an index against plain products in numpy."""

import dataclasses
import json
import string

import numpy as np
import pytest
from small import call, run, write_rows

import tfm
from train import predict
from train.lab import embed
from train.lab.embedding import late_index
from train.lab.embedding.late import LateEncoder, nearest_late
from train.lab.embedding.options import TextEncoderOptions
from train.lab.retrieve import main as retrieve
from train.lab.search import main as search
from train.main import main
from train.runs.run_folder import open_folder
from train.screens.console import Log
from train.tasks.late.rows import fill_up, scored_places
from train.text.special import SpecialTokens

pytestmark = pytest.mark.usefixtures("in_home")

SMALL = (
    "--task=late --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --tokenizer.vocab=300 "
    "--batch.size=16 --batch.length=16 --batch.shapes=1 --model.init-std=0.1 --data=train.jsonl --eval-data=dev.jsonl "
    "--data.field=query,passage,negative --task.size=16 --task.query-length=8 "
    "--log.every=50 --eval.every=200 --checkpoint.every=200 --optim.rate=5e-3 --steps=200"
).split()
ANIMALS = "cat dog cow pig hen fox owl bee".split()
DEEDS = "sat ran fell slept".split()


def rows_of(count, seed):
    """Queries about an animal and what it did, the passage that says it, and one on another animal."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        right, wrong = rng.permutation(ANIMALS)[:2]
        deed = rng.choice(DEEDS)
        negative = f"the {wrong} {deed}, and slept." if rng.random() < 0.8 else ""
        yield {"query": f"what {deed} was it a {right}", "passage": f"a {right} {deed}.", "negative": negative}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Rows to train on and to validate on, and a folder of BEIR."""
    folder = tmp_path_factory.mktemp("home")
    for name, count, seed in (("train", 300, 0), ("dev", 40, 1)):
        write_rows(folder / f"{name}.jsonl", rows_of(count, seed))
    (folder / "beir" / "qrels").mkdir(parents=True)
    pairs = [(animal, deed) for animal in ANIMALS for deed in DEEDS]
    write_rows(folder / "beir" / "corpus.jsonl", [{"_id": f"{a}-{d}", "text": f"a {a} {d}."} for a, d in pairs])
    queries = [{"_id": f"q{a}-{d}", "text": f"what {d} was it a {a}"} for a, d in pairs]
    write_rows(folder / "beir" / "queries.jsonl", queries)
    (folder / "beir" / "qrels" / "test.tsv").write_text("".join(f"q{a}-{d}\t{a}-{d}\t1\n" for a, d in pairs))
    (folder / "passages.txt").write_text("".join(f"a {a} {d}.\n" for a, d in pairs))
    return folder


@pytest.fixture(scope="module")
def trained(home):
    """The result of a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        run(*SMALL, "--out=run")
    return json.loads((home / "run" / "result.json").read_text())


def test_places_that_score():
    """[MASK]s fill queries up and are not read; punctuation of passages is read and does not score."""
    specials = SpecialTokens(pad=0, unk=1, cls=2, sep=3, mask=4)
    tokens = np.array([[2, 7, 3, 0, 0, 0], [2, 7, 8, 9, 9, 3], [0] * 6], np.int32)
    valid = (tokens > 0).astype(np.int32)
    assert scored_places(tokens, valid, np.array([9])).tolist() == [
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0, 1],
        [0] * 6,
    ]
    scored = fill_up(tokens, valid, 5, specials)
    assert tokens.tolist() == [[2, 7, 3, 4, 4, 0], [2, 7, 8, 9, 9, 3], [0] * 6]
    assert scored.tolist() == [[1, 1, 1, 1, 1, 0], [1] * 6, [0] * 6]
    assert valid.sum() == 9, "what is read stays"


def max_sim(query, passage):
    """The definition (Khattab & Zaharia 2020, equation 3)."""
    return sum(max(float(q @ p) for p in passage) for q in query)


def test_exact_scores_are_the_definition():
    """Of passages of different lengths, where all products of one are negative."""
    rng = np.random.default_rng(0)
    queries = [rng.normal(size=(size, 4)).astype(np.float32) for size in (3, 1)]
    passages = [rng.normal(size=(size, 4)).astype(np.float32) for size in (2, 5, 1)]
    passages.append(-queries[1])
    expected = np.array([[max_sim(query, passage) for passage in passages] for query in queries])
    scores, rows = nearest_late(queries, passages, 4)
    np.testing.assert_array_equal(rows, np.argsort(-expected, axis=1))
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1), rtol=1e-5)
    assert expected[1, 3] < 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--data.field=query", "data.field=query must name a query and a passage"),
        ("--task.query-length=17", "--task.query-length=17 must be at most batch.length=16"),
        ("--task.temperature=0", "task.temperature=0.0 must be at least 0.001"),
        ("--batch.size=1", "batch.size=1 leaves no other passage"),
        ("--model.head.causal=true", "reads from left to right"),
        ("--data.field=query,answer,negative", "no text column 'answer'"),
    ],
)
def test_bad_input(flags, says, home):
    code, out, err = call(main, *SMALL, "--out=bad", *flags.split())
    assert (code, out) == (2, "")
    assert says in err
    assert not (home / "bad").exists()


@pytest.mark.slow
def test_learns_predicts_and_ranks(trained, home):
    assert trained["eval_accuracy"] > 0.9
    code, out, err = call(predict.main, "--run=run", "--text=what ran was it a cow", "--pair=a cow ran.")
    assert code == 0, err
    wrong = call(predict.main, "--run=run", "--text=what ran was it a cow", "--pair=a fox sat.")[1]
    assert float(wrong) < float(out) <= 8
    code, out, err = call(retrieve, "--run=run", "--data=beir", "--bm25=false", "--to=out.trec")
    assert code == 0, err
    assert json.loads(out)["ndcg_10"] > 0.9
    fields = next(line.split() for line in (home / "out.trec").read_text().splitlines())
    animal, deed = fields[0][1:].split("-")
    first = f"a {' '.join(fields[2].split('-'))}."
    score = call(predict.main, "--run=run", f"--text=what {deed} was it a {animal}", f"--pair={first}")[1]
    assert float(fields[4]) == pytest.approx(float(score), abs=1e-4)


@pytest.mark.slow
def test_blanks_are_not_read(trained, home):
    """More [MASK]s change no vector of a word; padding changes nothing."""
    encoder = LateEncoder(TextEncoderOptions(run="run"), Log(quiet=True))
    text = "what ran was it a cow"
    short = encoder.queries([text])[0]
    folder = encoder.folder
    task = dataclasses.replace(folder.config.task, query_length=14)
    folder.__dict__["config"] = dataclasses.replace(folder.config, task=task)
    long = encoder.queries([text, "fox"])[0]
    assert len(long) == 14
    np.testing.assert_allclose(long[: len(short)], short, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(long, axis=1), 1, rtol=1e-5)


@pytest.mark.slow
def test_index(trained, home, monkeypatch):
    """Exact scores of vectors in int8; candidates by centroids are those of all texts but for few."""
    code, _, err = call(embed.main, "--run=run", "--file=passages.txt", "--index=index")
    assert code == 0, err
    query = "what slept was it a pig"
    code, out, err = call(search, "--index=index", f"--query={query}", "--nearest=3")
    assert code == 0, err
    index, encoder = late_index.LateIndex("index"), LateEncoder(TextEncoderOptions(run="run"), Log(quiet=True))
    texts = (home / "passages.txt").read_text().splitlines()
    vectors = encoder.queries([query])[0]
    stored = index.passages(range(len(index)))
    expected = np.array([max_sim(vectors, passage) for passage in stored])
    lines = [line.split("\t") for line in out.splitlines()]
    assert [int(fields[1]) - 1 for fields in lines] == np.argsort(-expected, kind="stable")[:3].tolist()
    assert [fields[2] for fields in lines] == [texts[int(fields[1]) - 1] for fields in lines]
    np.testing.assert_allclose([float(fields[0]) for fields in lines], np.sort(-expected)[:3] * -1, atol=1e-3)
    exact = np.array([max_sim(vectors, passage) for passage in encoder.passages(texts)])
    np.testing.assert_allclose(expected, exact, atol=0.05)
    monkeypatch.setattr(late_index, "_CANDIDATES", 16)
    rows = index.search(vectors, 3)[1]
    assert len(set(rows) & set(np.argsort(-expected)[:3])) == 3
    flags = ["--run=run", "--file=passages.txt", "--index=index"]
    assert "--index=index exists" in call(embed.main, *flags)[2]
    assert "say --index=FOLDER alone" in call(embed.main, *flags[:2], "--to=x.npy")[2]


@pytest.mark.slow
def test_what_has_no_vector_of_a_text_refuses(trained, home):
    code, _, err = call(retrieve, "--run=run", "--data=beir", "--pool=max", "--bm25=false")
    assert code == 2
    assert "--pool=max is of encoders with a vector of each text" in err


@pytest.mark.parity
@pytest.mark.slow
def test_vectors_are_those_of_sentence_transformers(trained, home):
    """Those of a MultiVectorEncoder with the same weights, [MASK]s and punctuation, and its scores."""
    library = pytest.importorskip("sentence_transformers")
    torch = pytest.importorskip("torch")
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    folder = open_folder("run")
    params, width = folder.load(log=lambda line: None), folder.config.model.width
    tfm.to_hf(folder.config.model, dataclasses.replace(params, output=None), "bert")
    folder.save_processor(home / "bert")
    expansion = {"strategy": "fixed", "attend": False, "length": 8}
    weight = torch.tensor(np.asarray(params.output.kernel).T.copy())
    names = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    modules = [
        Transformer("bert", query_expansion=expansion, max_seq_length=16),
        Dense(width, 16, bias=False, activation_function=None, init_weight=weight, **names),
        MultiVectorMask(skiplist_words=list(string.punctuation)),
        Normalize(**names),
    ]
    model = library.MultiVectorEncoder(modules=modules, device="cpu")
    queries, passages = ["what ran was it a cow", "fox"], ["a cow ran.", "the hen sat, and slept. " * 3, "bee"]
    encoder = LateEncoder(TextEncoderOptions(run="run"), Log(quiet=True))
    for vectors_of_texts, expected in (
        (encoder.queries(queries), model.encode_query(queries)),
        (encoder.passages(passages), model.encode_document(passages)),
    ):
        for vectors, row in zip(vectors_of_texts, expected, strict=True):
            np.testing.assert_allclose(vectors, np.asarray(row), atol=1e-5)
    scores = model.similarity(model.encode_query(queries), model.encode_document(passages)).cpu().numpy()
    values, rows = nearest_late(encoder.queries(queries), encoder.passages(passages), 3)
    np.testing.assert_allclose(np.take_along_axis(scores, rows, 1), values, atol=1e-5)
