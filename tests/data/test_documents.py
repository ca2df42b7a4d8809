"""A tokenizer that loses text makes bits a byte too small: so much is said."""

import pytest

from train.data import documents
from train.screens.console import Log
from train.settings import schema
from train.text import tokenize

TEXTS = ["the cat sat on the mat", "a dog ran over  the old house"] * 20


@pytest.mark.parametrize(
    ("kind", "text", "kept"),
    [
        ("bpe", ["An été,  two spaces\nand a line"], None),
        ("char", ["the cat sat", "the éa"], 0.5),
        ("wordpiece", ["the cat sat", "THE CAT", "the  cat"], 1 / 3),
    ],
)
def test_what_does_not_come_back_from_its_tokens(kind, text, kept, capsys):
    """Pairs of bytes keep all; unknown characters, capital letters and double spaces are lost by others."""
    tokenizer = tokenize.train(schema.Tokenizer(kind=kind, vocab=300), TEXTS)
    share = documents.text_kept(tokenizer, text, Log())
    assert share == ({} if kept is None else {"text_kept": pytest.approx(kept)})
    assert ("loses text" in capsys.readouterr().err) == (kept is not None)
    assert documents.kept_of(share) == share
