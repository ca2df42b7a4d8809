"""Control tokens that a text spells stay text, unless a run asks otherwise."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from train import UserError
from train.data import tokens
from train.screens.console import Log
from train.settings import schema
from train.text import control_tokens, tokenize
from train.text.special import ConfiguredTokenizer, special_tokens

TEXT = "press [MASK] then [SEP] now [PAD] [PAD] old ship [CLS] [UNK] sea"
CORPUS = [TEXT, "the old ship", "press now"]


class Lines(Log):
    def __init__(self):
        super().__init__(quiet=True)
        self.lines = []

    def info(self, text):
        if "control" in text:
            self.lines.append(text)


def control_ids(tokenizer):
    special = special_tokens(tokenizer)
    return {special.pad, special.cls, special.sep, special.mask}


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "word", "char"])
def test_a_control_token_in_a_document_is_text(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("TFM_CACHE", str(tmp_path))
    tokenizer, log = tokenize.train(schema.Tokenizer(kind, 300), CORPUS), Lines()
    ids = tokens.encode(tokenizer, CORPUS, log, "training text")
    assert not control_ids(tokenizer) & set(ids.ids.tolist())
    assert log.lines == [
        "control tokens such as [PAD] stand in the training text 6 times; they are read as text (--data.control-tokens)"
    ]
    if kind in ("bpe", "char"):
        assert tokenizer.decode(ids[0].tolist()) == TEXT
    assert tokens.in_memory(tokenizer, CORPUS).ids.tolist() == ids.ids.tolist()
    assert special_tokens(tokenizer).mask in tokenizer.encode(TEXT).ids, "who asks for a blank gets it"


def test_they_are_control_tokens_where_a_run_keeps_them(tmp_path, monkeypatch):
    monkeypatch.setenv("TFM_CACHE", str(tmp_path))
    tokenizer, log = tokenize.train(schema.Tokenizer("bpe", 300), CORPUS), Lines()
    plain = tokens.encode(tokenizer, CORPUS, log, "text").ids.tolist()
    with control_tokens.reading("keep"):
        kept = tokens.encode(tokenizer, CORPUS, log, "text").ids.tolist()
        assert kept[: len(tokenizer.encode(TEXT, add_special_tokens=False).ids)] != plain
        assert control_ids(tokenizer) <= set(kept)
    assert "read as such" in log.lines[-1]
    assert tokens.encode(tokenizer, CORPUS, log, "text").ids.tolist() == plain, "the cache keeps both apart"


def test_they_are_an_error_where_a_run_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("TFM_CACHE", str(tmp_path))
    tokenizer = tokenize.train(schema.Tokenizer("bpe", 300), CORPUS)
    with control_tokens.reading("error"):
        tokens.encode(tokenizer, CORPUS[1:], Lines(), "text")
        with pytest.raises(UserError, match=r"--data.control-tokens=error: \[MASK\] stands in the text 'press \[MASK"):
            tokens.encode(tokenizer, CORPUS, Lines(), "text")
        with pytest.raises(UserError, match=r"\[CLS\] stands in the text"):
            control_tokens.encode(tokenizer, [["a", "[CLS]"]], is_pretokenized=True)


def test_a_vocabulary_that_has_a_control_token_as_a_word():
    """Words between spaces: the model itself would find [MASK]."""
    words = {word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "press", "sea"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(words)[:5])
    assert tokens.in_memory(tokenizer, ["press [MASK] sea"]).ids.tolist() == [5, 1, 6]


def test_added_words_stay_whole():
    """Tokens beside a vocabulary that are no control tokens are words of their own."""
    tokenizer = tokenize.train(schema.Tokenizer("wordpiece", 300), CORPUS)
    tokenizer.add_tokens(["<new>"])
    assert tokens.in_memory(tokenizer, ["press <new>"]).ids[-1] == tokenizer.token_to_id("<new>")


def test_unknown_words_stay_unknown_where_the_folder_names_no_token_for_them():
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1, "old": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.add_special_tokens(["<pad>", "<unk>"])
    tokenizer = ConfiguredTokenizer(words, {"pad_token": "<pad>"})
    assert [
        ids.tolist() for ids in control_tokens.ids_of(tokenizer, control_tokens.encode(tokenizer, ["new old"]))
    ] == [[1, 2]]
