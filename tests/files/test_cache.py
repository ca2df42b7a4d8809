"""Entries of the cache are whole, or they are made again."""

import concurrent.futures
import os
import time

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from train.data import tokens
from train.data.sources import builtin
from train.files import cache
from train.screens.console import Log
from train.settings import schema
from train.text import tokenize
from train.text.special import DocumentMarks


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TFM_CACHE", str(tmp_path))
    return tmp_path


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(bytes(data))


def test_an_entry_is_what_was_put_in(folder):
    assert cache.read(folder / "a") is None
    for data in (b"", b"ab", bytes(range(256)) * 5000):
        (folder / "a").unlink(missing_ok=True)
        cache.write(folder / "a", data)
        assert bytes(cache.read(folder / "a")) == data
    assert [path.name for path in folder.iterdir()] == ["a"]


def test_every_damage_is_noticed(folder):
    cache.write(folder / "a", b"an entry")
    intact = (folder / "a").read_bytes()
    for bit in range(8 * len(intact)):
        flip(folder / "a", bit)
        assert cache.read(folder / "a") is None, bit
        (folder / "a").write_bytes(intact)
    for size in range(len(intact)):
        (folder / "a").write_bytes(intact[:size])
        assert cache.read(folder / "a") is None, size


def test_the_first_of_two_entries_stays(folder):
    """A run reads what it goes on with later, even if another process made the same entry at the same time."""
    with cache.writer(folder / "a") as append:
        append(b"mine")
        cache.write(folder / "a", b"of the first process")
    assert bytes(cache.read(folder / "a")) == b"of the first process"
    (folder / "a").write_bytes(b"damaged")
    cache.write(folder / "a", b"again")
    assert bytes(cache.read(folder / "a")) == b"again"
    assert [path.name for path in folder.iterdir()] == ["a"]


def test_who_needs_what_another_makes_waits_for_it(folder, capsys):
    """Eight at once: one makes the entry, of random bytes, and all have these. Nothing is left of their lock."""
    drawn = []

    def make():
        time.sleep(0.2)
        drawn.append(os.urandom(8))
        cache.write(folder / "a", drawn[-1])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        started = [pool.submit(cache.entry, folder / "a", make) for _ in range(8)]
        contents = [bytes(future.result()) for future in started]
    assert contents == drawn * 8
    assert [path.name for path in folder.iterdir()] == ["a"]
    assert "waiting for another process that makes the same entry" in capsys.readouterr().err


def test_an_interrupted_entry_leaves_nothing(folder):
    def interrupted():
        with cache.writer(folder / "a") as append:
            append(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(folder.iterdir()) == []


def tokenized():
    names = ["[UNK]", "a", "b"]
    words = Tokenizer(models.WordLevel({name: token for token, name in enumerate(names)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokens.encode(words, ["a b a", "", "b c"], Log(quiet=True), "text", marks=DocumentMarks(2, 2))


def trained():
    return tokenize.load(schema.Tokenizer(vocab=300), ["ab"] * 9, Log(quiet=True)).to_str()


@pytest.mark.parametrize("make", [tokenized, trained, builtin.documents])
def test_damaged_entries_are_made_again_in_silence(folder, make, monkeypatch, capsys):
    monkeypatch.setattr(builtin, "_extract", lambda: ["a document", "another"])
    first = make()
    (path,) = (path for path in folder.rglob("*") if path.is_file())
    intact, inode = path.read_bytes(), path.stat().st_ino
    make()
    assert path.stat().st_ino == inode, "read from the cache"
    for damaged in (b"", intact[: len(intact) // 2], intact[:-1] + bytes([intact[-1] ^ 1])):
        path.unlink()  # arrays are mapped from it
        path.write_bytes(damaged)
        np.testing.assert_equal(tuple(make()), tuple(first))
        assert path.read_bytes() == intact
    assert capsys.readouterr().err == ""


def test_tokens_of_texts():
    """With a separator around each text; the last belongs to none."""
    text = tokenized()
    assert text.ids.tolist() == [2, 1, 2, 1, 2, 2, 2, 0, 2]
    assert text.starts.tolist() == [0, 4, 5, 8]
    assert (text.ids.dtype, text.starts.dtype) == (np.uint16, np.int64)
