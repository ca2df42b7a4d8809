"""Tokenizers: trained, read, given special tokens, cached."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from train import UserError
from train.screens.console import Log
from train.settings import schema
from train.text import tokenize, tokenizer_kinds

TEXTS = [
    "The quick brown fox jumps over the lazy dog.\nIt's 1984; ain't it, Zoë?",
    "A second text: foxes, dogs and quickness.",
] * 3
SHARED = Path(__file__).parents[3] / "shared" / "data" / "tokenizers"


class Quiet(Log):
    def info(self, text):
        pass


quiet = Quiet()


def ids(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("options", "comes_back"),
    [
        (schema.Tokenizer("wordpiece", 300), "the quick brown fox, zoe?"),  # lower case, accents stripped
        (schema.Tokenizer("wordpiece", 300, strip_accents=False), "the quick brown fox, zoë?"),
        (schema.Tokenizer("wordpiece", 300, lower=False), "The quick brown fox, Zoë?"),
        (schema.Tokenizer("bpe", 300), "The quick brown fox, Zoë?"),
        (schema.Tokenizer("unigram", 300), "The quick brown fox, Zoë?"),
        (schema.Tokenizer("word", 300), "the quick brown fox, zoe?"),
        (schema.Tokenizer("word", 300, lower=False), "The quick brown fox, Zoë?"),
        (schema.Tokenizer("word", 300, lower=False, strip_accents=True), "The quick brown fox, Zoe?"),
        (schema.Tokenizer("char", 300), "The quick brown fox, Zoë?"),
    ],
)
def test_trained_tokenizers_come_back_to_the_text(options, comes_back):
    tokenizer = tokenize.train(options, TEXTS)
    decoded = tokenizer.decode(ids(tokenizer, "The quick brown fox, Zoë?")).replace(" ?", "?").replace(" ,", ",")
    assert decoded == comes_back
    assert tokenizer.get_vocab_size() <= 300


def test_bpe_knows_every_byte():
    tokenizer = tokenize.train(schema.Tokenizer("bpe", 400), ["plain"])
    for text in ("漢字 😀", "tab\tand  spaces\n\nand lines"):
        assert tokenizer.decode(ids(tokenizer, text)) == text


def test_char_splits_every_character():
    tokenizer = tokenize.train(schema.Tokenizer("char", 300), ["abc \n"])
    assert tokenizer.encode("cab\na #", add_special_tokens=False).tokens == ["c", "a", "b", "\n", "a", " ", "[UNK]"]


def test_trained_vocabulary_size_and_special_tokens():
    text = " ".join(f"word{n:x}ish" for n in range(2000))
    for kind in ("wordpiece", "bpe", "word"):
        tokenizer = tokenize.train(schema.Tokenizer(kind, 500), [text])
        assert tokenizer.get_vocab_size() == 500
        assert tokenize.special_tokens(tokenizer) == (0, 1, 2, 3, 4)
        assert [tokenizer.id_to_token(i) for i in range(5)] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.mark.parametrize(
    ("kind", "a", "b"),
    [("wordpiece", "a", "b"), ("bpe", "a", "b"), ("unigram", "▁a", "▁dog"), ("word", "a", "dog"), ("char", "a", "b")],
)
def test_saved_tokenizer_wraps_a_text(kind, a, b):
    tokenizer = tokenize.train(schema.Tokenizer(kind, 300), TEXTS)
    assert tokenizer.encode(a.strip("▁"), b.strip("▁")).tokens == ["[CLS]", a, "[SEP]", b, "[SEP]"]


def test_word_keeps_the_most_frequent_words():
    text = " ".join(f"w{n} " * (400 - n) for n in range(400)) + "?! ?!" * 500
    tokenizer = tokenize.train(schema.Tokenizer("word", 300), [text])
    tokens = tokenizer.encode("W0, w292 w293?!", add_special_tokens=False).tokens
    assert tokens == ["w0", "[UNK]", "w292", "[UNK]", "?", "!"], (
        "five special tokens and two marks leave room for 293 words"
    )
    assert tokenizer.decode(ids(tokenizer, "W0 w292?")) == "w0 w292?"


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "word"])
def test_tokens_that_go_on_make_whole_words(kind):
    """Except that the first token of a text always starts a word."""
    texts = [
        stem + end for stem in ("fox", "jump", "walk", "box", "milk") for end in ("es", "ed", "ing", "s", "er", "")
    ] * 20
    tokenizer = tokenize.train(schema.Tokenizer(kind, 300), [" ".join(texts) + " 12 1 2 ,"])
    text = "boxing foxes, 12 milked walks" + (" walkings" if kind != "word" else "")
    tokens, goes_on, words = ids(tokenizer, text), tokenize.continues_word(tokenizer), []
    assert not goes_on[list(tokenize.special_tokens(tokenizer))].any()
    for token in tokens:
        words = [*words[:-1], [*words[-1], token]] if words and goes_on[token] else [*words, [token]]
    assert [tokenizer.decode(word).strip() for word in words] == text.replace(",", " ,").split()
    assert (len(tokens) > len(words)) == (kind != "word")


WORDPIECE = [models.WordPiece, decoders.WordPiece(), "[UNK] MASK fox 1 , ë", "##s ##2 ##ë"]
BYTES = [models.BPE, decoders.ByteLevel(), "[UNK] MASK Ġfox Ġ1 , Ċ Ġ ĠÃ« ĠÐ Ġà¤", "fox 1 Ã« © ©x Ã Ð¼Ð à¤ ļà¤"]
SPACED = [
    models.BPE,
    decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()]),
    "[UNK] MASK ▁fox ▁1 , ▁ <0x21> x,",
    "fox 1 ë क् <0x41> <0xA9> <0xC3>",
]


@pytest.mark.parametrize(
    ("model", "decoder", "starts", "goes_on"), [WORDPIECE, BYTES, SPACED], ids=["wordpiece", "bytes", "spaced"]
)
def test_tokens_that_go_on_with_a_word(model, decoder, starts, goes_on):
    """Special tokens never do, not even one that reads as a word; the later bytes of a character do."""
    vocab = {piece: i for i, piece in enumerate([*starts.split(), *goes_on.split()])}
    tokenizer = Tokenizer(
        model(vocab, unk_token="[UNK]") if model is models.WordPiece else model(vocab, [], unk_token="[UNK]")
    )
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["MASK"])
    np.testing.assert_array_equal(
        tokenize.continues_word(tokenizer), [False] * len(starts.split()) + [True] * len(goes_on.split())
    )


def test_every_kind_can_be_asked_for():
    assert all(schema.Tokenizer(kind).kind == kind for kind in tokenizer_kinds.TRAINERS)
    with pytest.raises(ValueError, match="kind=unigramm is unknown; did you mean unigram"):
        schema.Tokenizer("unigramm")


def test_characters_do_not_go_on():
    assert not tokenize.continues_word(tokenize.train(schema.Tokenizer("char", 300), TEXTS)).any()


def test_vocab_txt(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fox", "##es", "the", ","]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    for path in (tmp_path / "vocab.txt", tmp_path):  # the file, or its folder
        tokenizer = tokenize.load(schema.Tokenizer(path=str(path)), [], quiet)
        assert tokenizer.get_vocab_size() == len(words)
        assert tokenizer.encode("The foxes, zzz", add_special_tokens=False).tokens == [
            "the",
            "fox",
            "##es",
            ",",
            "[UNK]",
        ]
        assert tokenize.special_tokens(tokenizer) == (0, 1, 2, 3, 4)
    cased = tokenize.load(schema.Tokenizer(path=str(tmp_path), lower=False), [], quiet)
    assert ids(cased, "The the") == [1, 7]


def test_vocab_txt_without_special_tokens_is_given_them(tmp_path):
    (tmp_path / "vocab.txt").write_text("fox\nthe\n")
    tokenizer = tokenize.load(schema.Tokenizer(path=str(tmp_path)), [], quiet)
    special = tokenize.special_tokens(tokenizer)
    assert sorted(special) == [2, 3, 4, 5, 6]
    assert ids(tokenizer, "the unknown [MASK] fox") == [1, special.unk, special.mask, 0]


def test_vocab_txt_with_a_line_twice(tmp_path):
    """Its ids would have a gap."""
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfox\nfox\nthe\n")
    with pytest.raises(UserError, match=r"line 7 of vocab.txt repeats 'fox' of line 6"):
        tokenize.load(schema.Tokenizer(path=str(tmp_path)), [], quiet)


def test_gpt2_files(tmp_path):
    """A byte alphabet and two merges, as in GPT-2's encoder.json and vocab.bpe."""
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġt", "he", "<|endoftext|>"]
    (tmp_path / "encoder.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}), encoding="utf-8")
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\nĠ t\nh e\n", encoding="utf-8")
    for path in (tmp_path, tmp_path / "encoder.json", tmp_path / "vocab.bpe"):
        tokenizer = tokenize.load(schema.Tokenizer(path=str(path)), [], quiet)
        assert tokenizer.encode("he, the", add_special_tokens=False).tokens == ["he", ",", "Ġt", "he"]
        assert tokenizer.decode(ids(tokenizer, "Zoë — 😀")) == "Zoë — 😀"
        special = tokenize.special_tokens(tokenizer)
        assert special.sep == pieces.index("<|endoftext|>"), "its own name for the end"
        assert sorted([special.pad, special.unk, special.cls, special.mask]) == list(range(259, 263))


def test_published_vocabularies():
    if not SHARED.is_dir():
        pytest.skip("no ../shared/data/tokenizers here")
    bert = tokenize.load(schema.Tokenizer(path=str(SHARED / "bert-base-uncased")), [], quiet)
    assert bert.get_vocab_size() == 30522
    assert tokenize.special_tokens(bert) == (0, 100, 101, 102, 103)
    assert bert.encode("Hello, world!").ids == [101, 7592, 1010, 2088, 999, 102]
    gpt2 = tokenize.load(schema.Tokenizer(path=str(SHARED / "gpt2")), [], quiet)
    assert gpt2.get_vocab_size() == 50257 + 4
    assert tokenize.special_tokens(gpt2).sep == 50256
    assert ids(gpt2, "Hello, world!") == [15496, 11, 995, 0]


def test_tokenizer_json_without_special_tokens_is_given_them(tmp_path):
    plain = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    plain.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenize.load(schema.Tokenizer(path=str(tmp_path / "tokenizer.json")), [], quiet)
    assert tokenize.special_tokens(tokenizer) == (3, 4, 5, 6, 7)
    assert ids(tokenizer, "b a [MASK]") == [1, 0, 7]


def test_tokenizer_json_with_other_names_keeps_them(tmp_path):
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a"]
    Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>")).save(
        str(tmp_path / "roberta.json")
    )
    tokenizer = tokenize.load(schema.Tokenizer(path=str(tmp_path / "roberta.json")), [], quiet)
    assert tokenizer.get_vocab_size() == len(names)
    assert tokenize.special_tokens(tokenizer)._asdict() == {"pad": 1, "unk": 3, "cls": 0, "sep": 2, "mask": 4}


def test_training_is_cached_by_content(tmp_path, monkeypatch):
    monkeypatch.setenv("TFM_CACHE", str(tmp_path))
    first, trained = tokenize.load(schema.Tokenizer(vocab=300), TEXTS, quiet), []
    real = tokenize.train
    monkeypatch.setattr(tokenize, "train", lambda *args: trained.append(args) or real(*args))
    again = tokenize.load(schema.Tokenizer(vocab=300), list(TEXTS), quiet)
    assert not trained
    assert tokenize.fingerprint(again) == tokenize.fingerprint(first)
    for options, texts in [
        (schema.Tokenizer(vocab=301), TEXTS),
        (schema.Tokenizer("bpe", 300), TEXTS),
        (schema.Tokenizer("unigram", 300), TEXTS),
        (schema.Tokenizer("word", 300), TEXTS),
        (schema.Tokenizer(vocab=300, lower=False), TEXTS),
        (schema.Tokenizer(vocab=300), TEXTS[:1]),
        (schema.Tokenizer(vocab=300), ["".join(TEXTS)]),
    ]:
        tokenize.load(options, texts, quiet)
        assert trained.pop()
    assert len(list(tmp_path.rglob("*.json"))) == 8


def test_a_training_that_fails_leaves_nothing_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TFM_CACHE", str(tmp_path))

    def texts():
        yield "a"
        raise RuntimeError("cut short")

    with pytest.raises(Exception, match="cut short"):
        tokenize.train(schema.Tokenizer(vocab=300), texts())
    assert not list(tmp_path.rglob("*.json"))


def test_alphabetic_pieces(tmp_path):
    for pieces, decoder in (
        (["[UNK]", "##s", "fox", "##2", "1", ",", "##,", "ë"], decoders.WordPiece()),
        (["[UNK]", "Ġs", "fox", "Ġ2", "Ġ", "ĊĠĠ", "Ã", "ĠÃ«"], decoders.ByteLevel()),
        (["[UNK]", "▁s", "fox", "▁2", "▁", ",", "▁,", "▁ë"], decoders.Metaspace()),
    ):
        tokenizer = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
        tokenizer.decoder = decoder
        np.testing.assert_array_equal(
            tokenize.is_alphabetic(tokenizer), [False, True, True, False, False, False, False, True]
        )


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("tokenizer.json", "{", "cannot be read as a tokenizer: .* is not JSON"),
        ("tokenizer.json", '{"model": 3}', "cannot be read as a tokenizer: the tokenizers library refuses it"),
        ("tokenizer.json", b"\xff\xfe", "cannot be read as a tokenizer"),
        ("encoder.json", '{"a": 0}', r"cannot be read as a tokenizer: .*vocab.bpe"),
        ("tokens.bin", "a", "is none of tokenizer.json, vocab.txt, vocab.json with merges.txt"),
        ("vocab.txt", b"a\n\xff", "cannot be read as a tokenizer"),
        ("vocab.txt", "", "cannot be read as a tokenizer: line 1 of vocab.txt is empty, where a token must stand"),
        ("vocab.txt", "a\n[UNK]\n\nb\n", "cannot be read as a tokenizer: line 3 of vocab.txt is empty"),
        ("vocab.txt", "[UNK]\na\nb\na\n", "cannot be read as a tokenizer: line 4 of vocab.txt repeats 'a' of line 2"),
        ("notes.md", "a", "is none of tokenizer.json"),
    ],
)
def test_files_that_are_no_tokenizer(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=sentence):
        tokenize.load(schema.Tokenizer(path=str(tmp_path / name)), [], quiet)


def test_malformed_gpt2_files(tmp_path):
    for encoder, merges in [
        ("[1, 2]", "v\n"),
        ('{"a": 0}', "v\na b c\n"),
        ('{"a": 0}', "v\na b\n"),
        ('{"a": "b"}', "v\n"),
    ]:
        (tmp_path / "encoder.json").write_text(encoder)
        (tmp_path / "vocab.bpe").write_text(merges)
        with pytest.raises(UserError, match="tokenizer.path"):
            tokenize.load(schema.Tokenizer(path=str(tmp_path)), [], quiet)


def test_places_that_hold_no_tokenizer(tmp_path):
    with pytest.raises(UserError, match=r"holds none of tokenizer.json, vocab.txt, encoder.json"):
        tokenize.load(schema.Tokenizer(path=str(tmp_path)), [], quiet)
    with pytest.raises(UserError, match="does not exist"):
        tokenize.load(schema.Tokenizer(path=str(tmp_path / "tokenizer.json")), [], quiet)


def test_what_a_file_has_for_training_is_left_out(tmp_path):
    """Truncation, padding and dropout of merges: every text has all of its tokens, and the same each time."""
    saved = tokenize.train(schema.Tokenizer("bpe", 300), TEXTS)
    expected = ids(saved, TEXTS[0])
    saved.model.dropout = 0.5
    saved.enable_truncation(4)
    saved.enable_padding(length=9)
    saved.save(str(tmp_path / "tokenizer.json"))
    assert '"dropout": 0.5' in (tmp_path / "tokenizer.json").read_text()
    with pytest.warns(UserWarning, match=r"has dropout=0.5, a random split; texts are split without it"):
        tokenizers = tokenizer_kinds.read_own(tmp_path / "tokenizer.json"), tokenize.read(tmp_path)
    for tokenizer in tokenizers:
        assert all(ids(tokenizer, TEXTS[0]) == expected for _ in range(5))
        assert len(ids(tokenizer, "a")) == 1


def test_bytes_of_the_text_alone():
    """The merges of a few words, in the order of their counts (Sennrich et al. 2016, algorithm 1)."""
    text = "low low low low low lower lower newest newest newest newest newest newest widest widest widest"
    options = schema.Tokenizer("bpe", vocab=5 + 11 + 4, alphabet="text")
    tokenizer = tokenize.train(options, [text])
    vocabulary = tokenizer.get_vocab()
    assert len(vocabulary) == 20
    learned = {token for token in vocabulary if len(token) > 1 and token[0] != "["}
    assert {"est", "low"} < learned
    assert len(learned) == 4
    assert tokenizer.decode(tokenizer.encode("lowest").ids) == "lowest"
    assert "z" not in tokenizer.decode(tokenizer.encode("lowz").ids)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"kind": "bpe", "vocab": 200}, "vocab=200 must be at least 300"),
        ({"kind": "char", "alphabet": "text"}, "alphabet=text is an option of kind=bpe, not of kind=char"),
        ({"kind": "bpe", "alphabet": "text", "vocab": 3}, "vocab=3 must be at least 10"),
    ],
)
def test_alphabets_that_do_not_fit(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        schema.Tokenizer(**values)


def test_trainers_see_no_word_of_ten_million_letters(monkeypatch):
    """The time that they take grows with the square of its length: 12 s for 200,000 letters (M101)."""
    seen = []
    monkeypatch.setitem(tokenizer_kinds.TRAINERS, "bpe", lambda options, specials, texts: seen.extend(texts))
    texts = ["a fox " + "x" * 10_000_000 + " dogs", "y" * 1000 + " " + "z" * 2500, "short"]
    start = time.process_time()
    tokenize.train(schema.Tokenizer("bpe", 300), texts)
    assert time.process_time() - start < 2
    assert "".join(seen) == "".join(texts)
    assert seen[-4:] == ["y" * 1000 + " " + "z" * 1000, "z" * 1000, "z" * 500, "short"]
    assert max(len(word) for text in seen for word in text.split()) == 1000


@pytest.mark.parametrize("text", ["молоко и хлеб", "हिन्दी live", "crème brûlée live", "東京タワー に", "18th naïve"])
def test_a_word_goes_on_through_the_bytes_of_its_letters(text):
    """Of byte-level tokens without merges: a token that ends in half a letter begins no word."""
    tokenizer = tokenize.train(schema.Tokenizer("bpe", 300), ["zzz"])
    tokens, goes_on = ids(tokenizer, text), tokenize.continues_word(tokenizer)
    assert len(tokens) == len(text.encode())
    assert 1 + (~goes_on[tokens[1:]]).sum() == len(text.split())
