"""Vectors of words that are learned from a text."""

import json
import sys

import numpy as np
import pytest

from train.lab import words
from train.text.word_vectors import WordVectors

TOPICS = (["river", "boat", "water", "fish"], ["money", "loan", "coin", "debt"])
FLAGS = ("--size=8", "--epochs=20", "--data.split=line")


@pytest.fixture
def text(tmp_path):
    """Sentences of four words of one topic each."""
    pytest.importorskip("gensim")
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(TOPICS[n % 2], 4)).capitalize() + "." for n in range(1000)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines))
    return path


def learn(text, to, *flags):
    assert words.main([f"--data={text}", f"--to={to}", *FLAGS, *flags]) == 0
    return WordVectors(str(to))


@pytest.mark.parametrize("kind", ["skipgram", "cbow"])
def test_words_of_a_topic_are_near(text, tmp_path, kind, capsys):
    vectors = learn(text, tmp_path / "words.vec", f"--kind={kind}")
    units = np.array([vectors[word] / np.linalg.norm(vectors[word]) for topic in TOPICS for word in topic])
    nearest = np.argsort(-units @ units.T)[:, :4] // 4  # topics of the word itself and of the three nearest
    assert (nearest == np.repeat([0, 1], 4)[:, None]).all()
    assert vectors["River"] is None
    assert json.loads(capsys.readouterr().out)["words"] == len(vectors.places) == 9


def test_formats_hold_the_same(text, tmp_path):
    """A seed says all: a second training writes the same numbers, in any format."""
    vectors = [learn(text, tmp_path / f"words.{ending}") for ending in ("vec", "txt", "bin")]
    for word in TOPICS[0]:
        for again in vectors[1:]:
            np.testing.assert_allclose(again[word], vectors[0][word], atol=1e-6)
    assert not np.allclose(learn(text, tmp_path / "b.vec", "--seed=1")["boat"], vectors[0]["boat"], atol=1e-3)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--to=words.npy"], "to=words.npy must name a file to write, which ends in .vec, .txt, .bin"),
        (["--to=nowhere/words.vec"], "there is no folder nowhere; make it, or choose another"),
        (["--to=words.vec", "--min-count=9999999"], "no word of builtin occurs 9999999 times; try --min-count=1"),
        (["--to=words.vec", "--window=0"], "window=0 must be at least 1"),
    ],
)
def test_bad_input(flags, sentence, tmp_path, monkeypatch, capsys):
    pytest.importorskip("gensim")
    monkeypatch.chdir(tmp_path)
    assert words.main(flags) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_gensim(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    assert words.main([f"--to={tmp_path / 'words.vec'}"]) == 2
    assert 'pip install -e ".[words]"' in capsys.readouterr().err
