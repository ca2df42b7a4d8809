"""A graph of near vectors: what it finds beside exact search, and faults in one sentence."""

import sys

import numpy as np
import pytest
from small import call

from train import UserError
from train.lab import embed, search
from train.lab.embedding.approximate import GRAPH, nearest_of_graph, write_graph
from train.lab.embedding.search import nearest


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Texts of ten words, and vectors of these."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = [f"w{'abcdefghij'[index]}" for index in range(10)]
    rows = [f"{word} {' '.join(f'{value:.4f}' for value in rng.normal(size=8))}" for word in words]
    (tmp_path / "words.txt").write_text("\n".join(rows) + "\n")
    texts = dict.fromkeys(" ".join(rng.choice(words, rng.integers(2, 6))) for _ in range(60))
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    return tmp_path


FLAGS = ("--encoder=bow:words.txt", "--file=texts.txt", "--index=index", "--index-kind=hnsw")


def test_without_the_library(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    code, out, err = call(embed.main, *FLAGS)
    assert (code, out) == (2, "")
    assert "--index-kind=hnsw needs faiss; install it with" in err
    assert not (home / "index").exists()


@pytest.mark.slow
def test_commands(home):
    """Of few texts a graph misses none."""
    pytest.importorskip("faiss")
    code, _, err = call(embed.main, *FLAGS)
    assert code == 0, err
    flags = ("--index=index", "--query=wa wb", "--nearest=20")
    code, out, err = call(search.main, *flags)
    assert code == 0, err
    assert [line.split("\t")[0] for line in out.splitlines()] == [
        line.split("\t")[0] for line in call(search.main, *flags, "--exact")[1].splitlines()
    ]
    (home / "index" / GRAPH).write_bytes(b"no")
    code, _, err = call(search.main, *flags)
    assert code == 2
    assert "graph.faiss is absent or damaged" in err


@pytest.mark.slow
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_recall(similarity, tmp_path):
    """Of vectors around 200 centres the ten nearest, but for few."""
    pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(200, 32))
    vectors = (centres[rng.integers(0, 200, 5000)] + 0.5 * rng.normal(size=(5000, 32))).astype(np.float32)
    queries = (centres[:50] + 0.5 * rng.normal(size=(50, 32))).astype(np.float32)
    write_graph(tmp_path, vectors, similarity)
    values, rows = nearest_of_graph(tmp_path, queries, 10, similarity)
    exact, expected = nearest(queries, vectors, 10, similarity=similarity)
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(rows.tolist(), expected.tolist(), strict=True)])
    assert recall > 0.95
    np.testing.assert_allclose(values[:, 0], exact[:, 0], rtol=1e-4)
    with pytest.raises(UserError, match="queries have 8 numbers"):
        nearest_of_graph(tmp_path, queries[:, :8], 10, similarity)
