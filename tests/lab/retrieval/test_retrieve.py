"""train.retrieve on a small folder of BEIR, with vectors of words that make the answer plain."""

import gzip
import json
import sys

import numpy as np
import pytest
from small import call

from train.lab.retrieval import rankings
from train.lab.retrieve import main

PASSAGES = {
    "p1": ("Cats", "a cat sat"),
    "p2": ("", "it rained"),
    "p3": ("", "a dog ran"),
    "q2": ("", "dog"),
    "p4": ("", ""),
}
QUERIES = {"q1": "cat", "q2": "dog", "q3": "rained", "unjudged": "ran"}
JUDGMENTS = [("q1", "p1", 1), ("q1", "p3", 0), ("q2", "p3", 2), ("q2", "q2", 1), ("q3", "p1", 1), ("gone", "p1", 1)]


def write(folder, judgments=JUDGMENTS):
    """A folder of BEIR, of which the passages are compressed."""
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": name, "title": title, "text": text} for name, (title, text) in PASSAGES.items()]
    with gzip.open(folder / "corpus.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps(record) + "\n" for record in corpus))
    queries = [{"_id": name, "text": text, "metadata": {}} for name, text in QUERIES.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(record) + "\n" for record in queries))
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in judgments)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "bm25s", None)
    write(tmp_path / "beir")
    words = "cat dog rained ran sat cats it a".split()
    rows = [
        f"{word} {' '.join('1' if index == place else '0' for place in range(8))}" for index, word in enumerate(words)
    ]
    (tmp_path / "words.txt").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_a_folder_of_beir(home):
    """Queries find the passages with their words; a passage with the id of the query, and one without text, never."""
    code, out, err = call(main, "--encoder=bow:words.txt", "--data=beir", "--to=out.trec")
    assert code == 0, err
    assert "1 judged queries are not in queries.jsonl" in err
    result = json.loads(out)
    assert (result["queries"], result["passages"]) == (3, 5)
    first = (2 / 1) / (2 / 1 + 1 / np.log2(3))
    third = [line.split() for line in (home / "out.trec").read_text().splitlines() if line.startswith("q3")]
    assert [fields[2] for fields in third[:1]] == ["p2"]
    assert {fields[2] for fields in third} == {"p1", "p2", "p3", "q2"}, "a passage may have the id of another query"
    rank = next(int(fields[3]) for fields in third if fields[2] == "p1")
    assert rank == 4, "three passages have no common word; equal ones come by falling ids"
    assert result["ndcg_10"] == pytest.approx((1 + first + 1 / np.log2(rank + 1)) / 3, abs=1e-5)
    assert result["mrr_10"] == pytest.approx((1 + 1 + 1 / rank) / 3, abs=1e-5)
    assert result["recall_100"] == pytest.approx((1 + 1 / 2 + 1) / 3, abs=1e-5)


def replaced(name, text):
    def change(home):
        (home / "beir" / name).write_text(text)

    return change


@pytest.mark.parametrize(
    ("change", "flags", "says"),
    [
        (None, "--data=nowhere", "--data=nowhere is no folder; name one with corpus.jsonl"),
        (None, "--data=beir --split=dev", "beir/qrels has no dev.tsv; its splits are test"),
        (None, "--data=beir --split=../test", "--split=../test must be the name of a file of qrels/"),
        (None, "--data=beir --bm25", "BM25 needs bm25s; install it with"),
        (None, "--data=beir --rerank=nowhere", "nowhere"),
        (replaced("queries.jsonl", '{"_id": "q1"}\n'), "--data=beir", "queries.jsonl, line 1 has no text; correct it"),
        (
            replaced("queries.jsonl", '{"_id": 1, "text": "a"}\n' * 2),
            "--data=beir",
            "line 2 has the _id '1' of an earlier",
        ),
        (replaced("queries.jsonl", '{"_id": 1, "text": "a"}\n'), "--data=beir", "test.tsv judges no query of"),
        (replaced("queries.jsonl", "no"), "--data=beir", "queries.jsonl, line 1"),
        (replaced("qrels/test.tsv", "q1\tp1\tmuch\n"), "--data=beir", "test.tsv, line 1 must be a query's id"),
        (
            replaced("qrels/test.tsv", "q1\tp1\t1\nq1\tp1\t0\n"),
            "--data=beir",
            "judges 'p1' for 'q1' again, and otherwise",
        ),
        (replaced("corpus.jsonl", '{"_id": "p 1", "text": "a"}\n'), "--data=beir", "the _id 'p 1' has a blank"),
        (replaced("corpus.jsonl", "\n"), "--data=beir", "corpus.jsonl is empty; download it again"),
    ],
)
def test_bad_input(change, flags, says, home):
    if change:
        change(home)
    code, out, err = call(main, "--encoder=bow:words.txt", "--to=out.trec", *flags.split())
    assert (code, out) == (2, "")
    assert says in err
    assert not (home / "out.trec").exists()


def test_passages_of_bm25_are_ordered_anew_alone():
    code, out, err = call(main, "--rerank=runs/rank", "--bm25=false")
    assert (code, out) == (2, "")
    assert "--bm25=false finds no passages to order anew" in err


def test_the_best_are_ordered_anew():
    """By the score of a query with a passage: here the letters of both."""
    asked = []

    def score(pairs):
        asked.extend(pairs)
        return [float(len(query) + len(passage)) for query, passage in pairs]

    corpus, first = {"a": "one", "b": "three", "c": "four"}, {"q": {"a": 3.0, "b": 2.0, "c": 1.0}, "r": {"c": 1.0}}
    ranked = rankings.by_pairs(score, corpus, {"q": "who", "r": "x"}, first, 2)
    assert asked == [("who", "one"), ("who", "three"), ("x", "four")]
    assert ranked == {"q": {"a": 6.0, "b": 8.0}, "r": {"c": 5.0}}


def test_bm25_ranks_by_rare_common_words():
    bm25s = pytest.importorskip("bm25s")
    corpus = {"a": "the cat sat near the cat", "b": "the dog sat", "c": "rain fell on a cat and a dog"}
    ranked = rankings.by_words(bm25s, corpus, {"q": "cat sat", "b": "dog"}, 100)
    assert rankings.in_order(ranked["q"])[0] == "a"
    assert rankings.in_order(ranked["b"])[0] == "c", "a passage with the id of the query is left out"
    assert ranked["q"].keys() == {"a", "b", "c"}
