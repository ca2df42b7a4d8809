"""An index of texts: what is nearest in it is nearest among the vectors themselves."""

import io
import json

import numpy as np
import pytest
from small import call

from train.lab import embed, search
from train.lab.embedding.index import Index
from train.lab.embedding.search import nearest


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Texts of ten words, vectors of these, and queries."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = [f"w{'abcdefghij'[index]}" for index in range(10)]
    rows = [f"{word} {' '.join(f'{value:.4f}' for value in rng.normal(size=8))}" for word in words]
    (tmp_path / "words.txt").write_text("\n".join(rows) + "\n")
    texts = [" ".join(rng.choice(words, rng.integers(2, 6))) for _ in range(50)]
    (tmp_path / "texts.txt").write_text("\n".join([*texts, 'wa "quoted" über']) + "\n")
    (tmp_path / "queries.txt").write_text("wa wb\nwc\n")
    return tmp_path


def encoded(home, kind, to):
    flags = ["--encoder=bow:words.txt", "--file=texts.txt", f"--index={to}", f"--index-kind={kind}", "--to=all.npy"]
    assert call(embed.main, *flags)[0] == 0
    return Index(str(home / to)), np.load(home / "all.npy")


@pytest.mark.parametrize(("kind", "tolerance"), [("float32", 0), ("int8", 0.02)])
def test_an_index_finds_what_is_near(kind, tolerance, home):
    index, vectors = encoded(home, kind, "index")
    assert index.shape == vectors.shape
    np.testing.assert_allclose(index[3:9], vectors[3:9], atol=tolerance)
    assert index.texts([50, 0]) == ['wa "quoted" über', (home / "texts.txt").read_text().splitlines()[0]]
    code, out, err = call(search.main, "--index=index", "--query=wa wb", "--nearest=51")
    assert code == 0, err
    lines = [line.split("\t") for line in out.splitlines()]
    assert call(embed.main, "--encoder=bow:words.txt", "--file=queries.txt", "--to=queries.npy")[0] == 0
    values, rows = nearest(np.load(home / "queries.npy"), vectors, 51)
    np.testing.assert_allclose([float(line[0]) for line in lines], values[0], atol=tolerance + 1e-4)
    if kind == "float32":
        assert [int(line[1]) - 1 for line in lines] == rows[0].tolist()
    code, _, err = call(search.main, "--index=index", "--file=queries.txt", "--nearest=3", "--to=out.jsonl")
    assert code == 0, err
    answers = [json.loads(line) for line in (home / "out.jsonl").read_text().splitlines()]
    assert [answer["query"] for answer in answers] == ["wa wb", "wc"]
    np.testing.assert_allclose([hit["score"] for hit in answers[1]["nearest"]], values[1][:3], atol=tolerance + 1e-4)


def test_products_count_the_scales(home):
    """int8 numbers of a vector are its own times a scale; their products are those of the vectors."""
    index, vectors = encoded(home, "int8", "index")
    queries = np.random.default_rng(3).normal(size=(2, 8)).astype(np.float32)
    values, _ = nearest(queries, index, 5, block=7, similarity="dot")
    expected, _ = nearest(queries, vectors, 5, similarity="dot")
    np.testing.assert_allclose(values, expected, atol=0.05)


def array(values):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def facts(**changes):
    def damage(home):
        path = home / "index" / "index.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def damaged(name, content):
    def damage(home):
        (home / "index" / name).write_bytes(content)

    return damage


QUERY = "--index=index --query=wa --nearest=40"


@pytest.mark.parametrize(
    ("damage", "flags", "says"),
    [
        (None, "--index=nowhere --query=wa", "--index=nowhere is no index: it has no index.json"),
        (None, "--index=index", "query=TEXT or --file=QUERIES.txt must say what to look for"),
        (damaged("vectors.npy", b"no"), "--index=index --query=wa", "vectors.npy is absent or damaged"),
        (damaged("vectors.npy", array(np.full((51, 8), np.nan, np.float32))), QUERY, "has vectors that are not finite"),
        (
            damaged("vectors.npy", array(np.ones((51, 8), np.int8))),
            QUERY,
            "holds int8 [51, 8], and by index.json float32",
        ),
        (damaged("places.npy", array(np.full(51, -5))), QUERY, "texts.jsonl is absent or damaged"),
        (damaged("texts.jsonl", b'"wa"'), QUERY, "texts.jsonl is absent or damaged"),
        (facts(kind="odd"), QUERY, "index.json: kind=odd is unknown"),
        (facts(count="many"), QUERY, "index.json: count='many' must be a whole number"),
        (facts(encoder={"odd": 1}), QUERY, "encoder.odd is not understood; make the index again"),
        (damaged("index.json", b'{"format": 1}'), QUERY, "index.json has no encoder; make the index again"),
        (damaged("index.json", b'{"format": 9}'), "--index=index --query=wa", "was written by another version"),
        (
            damaged("../queries.txt", b"wa\n\nwb\n"),
            "--index=index --file=queries.txt",
            "query 2 of queries.txt is empty",
        ),
    ],
)
def test_bad_input(damage, flags, says, home):
    encoded(home, "float32", "index")
    if damage:
        damage(home)
    code, out, err = call(search.main, *flags.split())
    assert (code, out) == (2, "")
    assert says in err


def test_an_index_is_not_written_over(home):
    encoded(home, "float32", "index")
    code, _, err = call(embed.main, "--encoder=bow:words.txt", "--file=texts.txt", "--index=index")
    assert code == 2
    assert "--index=index exists; choose another folder, or remove it" in err
    assert not list(home.glob("*.part"))
