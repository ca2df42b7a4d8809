"""Pairs on the disk make the rows that they make in memory."""

import gzip
import json

import numpy as np
import pytest

from train import UserError
from train.data.sources import kept_pairs
from train.screens.console import Log
from train.tasks import resolve, table


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Six hundred pairs, some of which are empty on a side, in several formats."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFM_CACHE", str(tmp_path / ".cache"))
    rng, words = np.random.default_rng(0), "the cat säß on ä mat while rain fell".split()
    sentences = [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(600)]
    pairs = [(text if n % 50 else " ", f"{n} {text[::-1]}") for n, text in enumerate(sentences)]
    for place, side in enumerate(("en", "de")):
        text = "\n".join(pair[place] for pair in pairs) + "\n"
        (tmp_path / f"text.{side}.gz").write_bytes(gzip.compress(text.encode()))
    for shard in range(3):
        part = pairs[200 * shard : 200 * shard + 200]
        lines = [json.dumps(dict(zip(("en", "de"), pair, strict=True))) for pair in part]
        (tmp_path / f"{shard}.jsonl").write_text("\n".join(lines))
        (tmp_path / f"{shard}.tsv").write_text("\n".join(["en\tde", *map("\t".join, part)]))
    return tmp_path


def load(*argv):
    size = ["--batch.size=8", "--batch.length=24", "--tokenizer.vocab=300", "--steps=10"]
    run = resolve.resolve(["--task=translate", *argv, *size], None, None)[0]
    return table.task_of(run).load(run, Log(quiet=True))


SOURCES = ["text.en.gz,text.de.gz", "*.jsonl", "*.tsv", "*.jsonl --eval-data=0.tsv", "*.tsv --data.pack=false"]


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_rows_are_those_of_pairs_in_memory(home, monkeypatch, source):
    argv = f"--data={source}".split()
    expected = load(*argv)
    monkeypatch.setattr(kept_pairs, "LARGE", 0)
    for _ in range(2):
        corpus = load(*argv)
        assert isinstance(corpus.train[0].pairs, kept_pairs.KeptPairs)
        assert corpus.facts() == expected.facts()
        for n in (0, 3, 50):
            assert corpus.batch(n).keys() == expected.batch(n).keys()
            for name, field in expected.batch(n).items():
                np.testing.assert_array_equal(corpus.batch(n)[name], field)
        assert [*corpus.valid.pairs] == [*expected.valid.pairs]
        assert [*corpus.train[0].all_pairs[5:9]] == [*expected.train[0].all_pairs[5:9]]
    assert len([*(home / ".cache").glob("pairs-*.json")]) == 1


def test_bad_pairs(home, monkeypatch):
    monkeypatch.setattr(kept_pairs, "LARGE", 0)
    with pytest.raises(UserError, match=r"--data.folds=3 divides rows in memory"):
        load("--data=*.tsv", "--data.folds=3", "--data.fold=0")
    (home / "short.de").write_text("a\nb\n")
    (home / "short.en").write_text("a\nb\nc\n")
    with pytest.raises(UserError, match=r"short.de ends before line 3; line n of one file must be the translation of"):
        load("--data=short.en,short.de")
    (home / "1.jsonl").write_text('{"en": "a"}')
    with pytest.raises(UserError, match=r"1.jsonl, line 1 has no text column 'de'"):
        load("--data=*.jsonl")
    (home / "same.tsv").write_text("en\tde\n" + "a\tb\n" * 50)
    with pytest.raises(UserError, match=r"of the pairs of same.tsv would be held out; name others with --eval-data"):
        load("--data=same.tsv")
    assert not [*(home / ".cache").glob("pairs-*.part*")]
