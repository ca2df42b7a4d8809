"""Pairs whose sides have no tokens."""

import pytest

from train import UserError
from train.data.tokens import PLAIN
from train.screens.console import Log
from train.tasks import resolve
from train.tasks.translate.rows import PairReader
from train.text import tokenize


@pytest.fixture
def reader(tmp_path, monkeypatch):
    monkeypatch.setenv("TFM_CACHE", str(tmp_path))
    flags = ["--task=translate", "--tokenizer.kind=wordpiece", "--tokenizer.vocab=300", "--batch.length=8"]
    run = resolve.resolve(flags, None, None)[0]
    return PairReader(
        run, tokenize.load(run.tokenizer, ["one two three", "eins zwei drei"] * 9, Log(quiet=True)), Log()
    )


def test_sides_without_tokens_are_left_out_and_said(reader, capsys):
    """Characters that the tokenizer does not read are no text."""
    pairs = [("one", "eins"), ("\u200b", "eins"), ("two", "\u200b\ufeff"), ("three", "drei")]
    assert reader.training_rows(pairs, PLAIN).all_pairs == [pairs[0], pairs[3]]
    assert "2 of 4 training pairs have a side without tokens, and are left out" in capsys.readouterr().err
    with pytest.raises(UserError, match="none of the validation pairs has tokens on both sides; correct the data"):
        reader.rows(pairs[1:3], "validation pairs")
