"""Text: where it comes from, what a document is, and which part validates."""

import gzip
import json
import os
import re
import subprocess
import sys

import pytest

from train import UserError, cache
from train.config import Data
from train.data import sources


def read(path, **options):
    return sources.read(str(path), Data(**options))


@pytest.mark.parametrize(
    ("split", "documents"),
    [
        ("file", ["one\ntwo\n\n\nthree\n  \nfour\n"]),
        ("line", ["one", "two", "three", "four"]),
        ("blank-line", ["one\ntwo", "three", "four\n"]),
    ],
)
def test_txt_splits(tmp_path, split, documents):
    (tmp_path / "a.txt").write_text("one\ntwo\n\n\nthree\n  \nfour\n")
    assert read(tmp_path / "a.txt", split=split) == documents


def test_crlf_and_bom(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\r\nthr\xc3\xa9e\r\n")
    assert read(tmp_path / "a.txt") == ["one\ntwo\n\nthrée\n"]
    assert read(tmp_path / "a.txt", split="blank-line") == ["one\ntwo", "thrée\n"]
    assert read(tmp_path / "a.txt", split="line") == ["one", "two", "thrée"]


def test_jsonl(tmp_path):
    lines = [{"text": "one\ntwo", "body": "x"}, {"text": "  ", "body": "y"}, {"text": "thr\u2028ee", "body": "z"}]
    (tmp_path / "a.jsonl").write_text("\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8")
    assert read(tmp_path / "a.jsonl") == ["one\ntwo", "thr\u2028ee"]
    assert read(tmp_path / "a.jsonl", field="body") == ["x", "y", "z"]


def test_gz(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("héllo\r\nyou".encode()))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "there"}\n'))
    assert read(tmp_path / "a.txt.gz") == ["héllo\nyou"]
    assert read(tmp_path / "b.jsonl.gz") == ["there"]


def test_glob_takes_files_in_the_order_of_their_names(tmp_path):
    for name in ("c", "a", "b"):
        (tmp_path / f"{name}.txt").write_text(name)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "d.txt").write_text("d")
    (tmp_path / "other.md").write_text("no")
    assert read(tmp_path / "*.txt") == ["a", "b", "c"]
    assert read(tmp_path / "**" / "*.txt") == ["a", "b", "c", "d"]
    with pytest.raises(UserError, match=r"other\.md is not a \.txt or \.jsonl"):
        read(tmp_path / "*.*")


def test_hold_out_of_one_document_is_its_last_tenth():
    text = "".join(chr(ord("a") + n % 26) for n in range(1000))
    assert sources.hold_out([text]) == ([text[:900]], [text[900:]])


def test_hold_out_of_many_documents_goes_by_hash():
    documents = [f"document {n}" for n in range(2000)]
    train, held = sources.hold_out(documents)
    assert sorted(train + held) == sorted(documents)
    assert abs(len(held) - 203) < 5 * (2000 * 0.1 * 0.9) ** 0.5, "26 of 256 first bytes are multiples of 10"
    assert sources.hold_out(documents) == (train, held)
    assert set(sources.hold_out(documents[::-1])[1]) == set(held), "not by place"
    assert set(held[:50]) <= set(sources.hold_out([*documents, "another"])[1]), "not by number"


def test_hold_out_leaves_something_on_both_sides():
    train, held = sources.hold_out([f"document {n}" for n in range(200)])
    for documents in (train[:2], held[:2], held[:10], [train[0], held[0]]):  # none, all, all and one of them chosen by hash
        assert all(sources.hold_out(documents)), documents


def test_hold_out_keeps_equal_documents_on_one_side():
    train, held = sources.hold_out([f"document {n % 10}" for n in range(100)])
    assert train
    assert held
    assert not set(train) & set(held)


def test_eval_data_takes_the_place_of_the_hold_out(tmp_path):
    (tmp_path / "a.txt").write_text("train")
    (tmp_path / "b.txt").write_text("valid")
    assert sources.load(Data(str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))) == (["train"], ["valid"])


def test_builtin():
    documents = sources.builtin()
    text = "\n".join(documents)
    assert 1_000_000 < len(text) < 10_000_000
    assert len(documents) > 300
    assert len(set(documents)) == len(documents)
    assert all(document == document.strip() != "" for document in documents)
    assert not re.search(r"([^\w\s])\1", text), "runs of a punctuation mark become one"
    train, held = sources.hold_out(documents)
    assert 0.03 < sum(map(len, held)) / len(text) < 0.3
    assert not set(train) & set(held)


def test_builtin_is_the_same_in_every_process(tmp_path):
    program = "from train import cache; from train.data import sources; print(cache.digest(sources.builtin()))"
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7", "TFM_CACHE": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True, text=True).stdout
    assert found.strip() == cache.digest(sources.builtin())
