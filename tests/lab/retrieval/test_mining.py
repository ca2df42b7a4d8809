"""Hard negatives against a plain loop over all passages, and the command on words that make the answer plain."""

import json
import sys

import numpy as np
import pytest
from small import call

from train.lab.mine import main
from train.lab.retrieval import mining
from train.lab.retrieval.mining import QueryPairs

# Two queries have a passage in common, and one query has two.
PAIRS = QueryPairs.of([("a", "p"), ("b ", "q"), ("a", "r"), ("c", "p"), ("d", "s"), ("e", "t"), ("f", "u")])


def test_texts_are_counted_once():
    assert PAIRS.queries == [*"abcdef"]
    assert PAIRS.passages == [*"pqrstu"]
    assert PAIRS.answers == [{0, 2}, {1}, {0}, {3}, {4}, {5}]


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("margin", [0.0, 0.05, 0.6])
def test_negatives_are_those_of_a_loop(margin, similarity):
    rng = np.random.default_rng(3)
    vectors = {text: rng.normal(size=8).astype(np.float32) for text in "abcdefpqrstu"}
    encode = lambda texts: np.stack([vectors[text] for text in texts])
    scorer = mining.by_vectors(encode, encode, similarity)
    actual = list(mining.negatives(PAIRS, scorer, count=3, margin=margin, depth=100))
    left_out = 0
    for query, answers, places in zip(PAIRS.queries, PAIRS.answers, actual, strict=True):
        scores = []
        for passage in PAIRS.passages:
            product = np.dot(np.float64(vectors[query]), vectors[passage])
            lengths = np.linalg.norm(vectors[query]) * np.linalg.norm(vectors[passage])
            scores.append(product / lengths if similarity == "cosine" else product)
        worst = min(scores[place] for place in answers)
        wrong = [place for place in range(6) if place not in answers and scores[place] <= worst - margin * abs(worst)]
        left_out += 6 - len(answers) - len(wrong)
        assert places == sorted(wrong, key=lambda place: -scores[place])[:3]
    assert left_out, "the margin keeps passages out"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "cat dog rained ran sat big it a".split()
    rows = [
        f"{word} {' '.join('1' if index == place else '0' for place in range(8))}" for index, word in enumerate(words)
    ]
    (tmp_path / "words.txt").write_text("\n".join(rows) + "\n")
    pairs = [("cat", "a cat sat"), ("dog", "a dog ran"), ("rained", "it rained"), ("cat", "a big cat ran")]
    lines = ["question\tanswer", *("\t".join(pair) for pair in pairs), "blank\t "]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("scorer", ["--encoder=bow:words.txt", "--bm25"])
def test_command(home, scorer):
    """No answer of a query is among its negatives, and blank places fill a row."""
    if scorer == "--bm25":
        pytest.importorskip("bm25s")
    flags = [scorer, "--data=pairs.tsv", "--data.field=question,answer", "--negatives=3", "--to=mined.jsonl"]
    code, out, err = call(main, *flags)
    assert (code, out) == (0, ""), err
    assert "--data=mined.jsonl --data.field=question,answer,negative_1,negative_2,negative_3" in err
    rows = [json.loads(line) for line in (home / "mined.jsonl").read_text().splitlines()]
    assert [(row["question"], row["answer"]) for row in rows[:2]] == [("cat", "a cat sat"), ("dog", "a dog ran")]
    negatives = [row[f"negative_{place}"] for row in rows if row["question"] == "cat" for place in (1, 2, 3)]
    assert len(rows) == 4
    assert set(negatives) == {"a dog ran", "it rained", ""}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--bm25 --encoder=bow:words.txt", "--bm25 ranks passages in place of --run"),
        ("--bm25 --margin=2", "--margin=2.0 must be at least 0 and at most 1"),
        ("--bm25 --to=out.tsv", "--to=out.tsv must name a .jsonl"),
        ("--encoder=bow:words.txt --data.field=question", "--data.field=question must name two columns"),
        ("--encoder=bow:words.txt --data.field=question,no", "has no text column 'no'"),
        ("--bm25", "BM25 needs bm25s; install it with"),
        ("", "--run=FOLDER or --encoder=bow:FILE must say"),
    ],
)
def test_bad_input(home, flags, says, monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    common = ["--data=pairs.tsv", "--data.field=question,answer", "--to=out.jsonl"]
    named = {flag.partition("=")[0] for flag in flags.split()}
    code, out, err = call(main, *[flag for flag in common if flag.partition("=")[0] not in named], *flags.split())
    assert (code, out) == (2, "")
    assert says in err
    assert not (home / "out.jsonl").exists()
