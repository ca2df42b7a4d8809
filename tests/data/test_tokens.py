"""Long texts are tokenized in pieces, with the ids of the whole."""

import random

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from train.data import encoding, tokens
from train.screens.console import Log
from train.settings import schema
from train.text import tokenize

WORDS = "I live here Anna don't 2023 naïve 東京タワー 😀 e-mail .".split()
rng = random.Random(0)
LINES = [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) + rng.choice([".", "", " ", "\n"]) for _ in range(300)]
TEXT = "\n".join(LINES)


def prefixed() -> Tokenizer:
    """As Llama's: a space is put before a text, and nothing splits it."""
    letters = sorted(set(TEXT) - {" "})
    vocab = {piece: i for i, piece in enumerate(["▁", *letters, "▁l", "li"])}
    tokenizer = Tokenizer(models.BPE(vocab, [("▁", "l"), ("l", "i")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


@pytest.fixture(params=["prefixed", "bpe", "wordpiece", "unigram", "char"])
def tokenizer(request):
    if request.param == "prefixed":
        return prefixed()
    return tokenize.train(schema.Tokenizer(request.param, 300), [TEXT])


@pytest.mark.parametrize("chunk", [1 << 20, 700])
def test_pieces_have_the_ids_of_the_whole_text(tokenizer, chunk, monkeypatch, tmp_path):
    monkeypatch.setenv("TFM_CACHE", str(tmp_path))
    monkeypatch.setattr(encoding, "_PIECE", 500)
    monkeypatch.setattr(encoding, "CHUNK", chunk)
    assert len(list(encoding._pieces(tokenizer, encoding.chunks(TEXT)))) > 10
    texts = tokens.encode(tokenizer, [TEXT, "I live"], Log(quiet=True), "texts")
    assert texts[0].tolist() == tokenizer.encode(TEXT, add_special_tokens=False).ids
    assert texts[1].tolist() == tokenizer.encode("I live", add_special_tokens=False).ids
