"""SentencePiece models against the library itself, and the training of new ones."""

import io
import random
import re
import threading
import time
from pathlib import Path
from pydoc_data.topics import topics

import pytest
import sentencepiece
from tokenizers import Tokenizer

from train import UserError
from train.screens.console import Log
from train.settings import schema
from train.text import sentencepiece_model, tokenize

SHARED = Path(__file__).parents[3] / "shared" / "data" / "tokenizers" / "t5"
SYMBOLS = ["<sym>", "<symbol>", "\n", "①"]

EDGES = [
    "",
    " ",
    "   ",
    "a",
    " leading",
    "trailing  ",
    "a   b",
    "  a  b  ",
    "Zoë — 😀",
    "漢字 😀😀 x",
    "tab\tand\nlines\n\nx",
    "\n",
    "\n\n",
]
EDGES += [
    "▁",
    "a▁",
    "▁a",
    "a ▁ b",
    "ﬁne ½ ① a①b",
    "x<sym>y",
    "<sym> a",
    "a <sym>b<sym><symbol>c",
    "a  <sym>  b",
    "<sym",
    "e\u0301",
    "don't",
]
EDGES += ["\u3000x\u00a0y", "QQQQ 漢漢漢 字", "def f(x): return x", "<s x", "\uff21\uff22 Straße", "1234567"]


def without_runs(text):
    """Rulers and the like may be cut into the same pieces in another order, which scores the same."""
    return re.sub(r"(\S)\1+", r"\1", text)


@pytest.fixture(scope="module")
def corpus():
    lines = [line for name in sorted(topics)[:30] for line in topics[name].splitlines()][:600]
    return [without_runs(line) for line in lines]


@pytest.fixture(scope="module")
def texts(corpus):
    rng, characters = random.Random(0), [*"abcdefghij   ▁.,tehéß漢😀\n\t(_)", "<sym>", "the", "ing ", " of ", "  "]
    return (
        EDGES + corpus[:100] + ["".join(rng.choice(characters) for _ in range(rng.randrange(25))) for _ in range(200)]
    )


def fit(corpus, **settings) -> bytes:
    """A small model of the library's own making."""
    model = io.BytesIO()
    common = dict(
        vocab_size=400,
        hard_vocab_limit=False,
        minloglevel=2,
        character_coverage=0.999,
        normalization_rule_name="identity",
    )
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_writer=model, **common | settings)
    return model.getvalue()


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize(
    "settings",
    [
        dict(),
        dict(normalization_rule_name="nmt_nfkc"),
        dict(add_dummy_prefix=False, normalization_rule_name="nmt_nfkc_cf"),
        dict(remove_extra_whitespaces=False),
        dict(add_dummy_prefix=False, remove_extra_whitespaces=False),
        dict(byte_fallback=True),
        dict(user_defined_symbols=SYMBOLS, normalization_rule_name="nmt_nfkc"),
        dict(user_defined_symbols=SYMBOLS, remove_extra_whitespaces=False, add_dummy_prefix=False, byte_fallback=True),
        dict(split_by_whitespace=False, normalization_rule_name="nmt_nfkc"),
        dict(control_symbols=["<c>"], unk_piece="<?>", unk_id=5, bos_id=-1, pad_id=0),
    ],
    ids=lambda settings: ",".join(f"{name}={value}" for name, value in settings.items()) or "default",
)
def test_ids_and_text_are_those_of_the_library(kind, settings, corpus, texts, tmp_path):
    data = fit(corpus, model_type=kind, **settings)
    (tmp_path / "any.model").write_bytes(data)
    library = sentencepiece.SentencePieceProcessor(model_proto=data)
    tokenizer = tokenize.read(tmp_path / "any.model")
    tokenizer = Tokenizer.from_str(tokenizer.to_str())  # as from a run folder
    for text in texts:
        expected = library.encode(text)
        assert tokenizer.encode(text, add_special_tokens=False).ids == expected, text
        if library.unk_id() not in expected:
            assert tokenizer.decode(expected) == library.decode(expected), text


def test_what_a_model_says(corpus):
    data = fit(corpus, byte_fallback=True, user_defined_symbols=SYMBOLS, add_dummy_prefix=False)
    library, model = sentencepiece.SentencePieceProcessor(model_proto=data), sentencepiece_model.parse(data)
    names = range(library.get_piece_size())
    assert [(piece.text, piece.score) for piece in model.pieces] == [
        (library.id_to_piece(i), library.get_score(i)) for i in names
    ]
    for kind, check in {
        sentencepiece_model.CONTROL: library.is_control,
        sentencepiece_model.UNKNOWN: library.is_unknown,
        sentencepiece_model.BYTE: library.is_byte,
    }.items():
        assert model.texts(kind) == [library.id_to_piece(i) for i in names if check(i)]
    assert model.texts(sentencepiece_model.USER_DEFINED) == SYMBOLS
    assert (model.kind, model.charsmap, model.add_dummy_prefix, model.remove_extra_whitespaces) == (
        sentencepiece_model.UNIGRAM,
        b"",
        False,
        True,
    )


def test_the_published_t5_model():
    if not SHARED.is_dir():
        pytest.skip("no ../shared/data/tokenizers/t5 here")
    (path,) = SHARED.glob("*.model")
    library = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokenizer = tokenize.load(schema.Tokenizer(path=str(SHARED)), [], Log())
    special = tokenize.special_tokens(tokenizer)
    assert (special.pad, special.unk, special.sep) == tuple(
        library.piece_to_id(name) for name in ("<pad>", "<unk>", "</s>")
    )
    assert tokenizer.get_vocab_size() == library.get_piece_size() + 1, "its start is <s>; only [MASK] is new"
    for text in [*EDGES, *(without_runs(topics[name][:500]) for name in sorted(topics))]:
        assert tokenizer.encode(text, add_special_tokens=False).ids == library.encode(text), text
    assert tokenize.continues_word(tokenizer)[tokenizer.token_to_id("ing")]
    assert not tokenize.continues_word(tokenizer)[tokenizer.token_to_id("▁the")]
    assert tokenize.is_alphabetic(tokenizer)[tokenizer.token_to_id("▁the")]


def test_missing_roles_are_added(corpus, tmp_path):
    (tmp_path / "spiece.model").write_bytes(fit(corpus))
    tokenizer = tokenize.load(schema.Tokenizer(path=str(tmp_path)), [], Log())
    size = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spiece.model")).get_piece_size()
    assert tokenize.special_tokens(tokenizer)._asdict() == {"pad": size, "unk": 0, "cls": 1, "sep": 2, "mask": size + 1}
    assert tokenizer.encode("the [MASK]", add_special_tokens=False).ids == [tokenizer.token_to_id("▁the"), size + 1]


def test_folders_with_models(corpus, tmp_path):
    first, second = (fit(corpus, vocab_size=size) for size in (300, 400))
    (tmp_path / "en.model").write_bytes(first)
    size = lambda: tokenize.read(tmp_path).get_vocab_size()
    alone = size()
    (tmp_path / "fr.model").write_bytes(second)
    with pytest.raises(UserError, match=r"holds none of .*tokenizer.model, but 2 .model files: name one of them"):
        size()
    (tmp_path / "tokenizer.model").write_bytes(second)
    assert size() > alone


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda data: b"", "is no SentencePiece model, or damaged"),
        (lambda data: b"<html>not found</html>", "is no SentencePiece model, or damaged"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1", "is no SentencePiece model, or damaged"),
        (lambda data: data[:-10], "is no SentencePiece model, or damaged"),
        (lambda data: data[: len(data) // 2], "is no SentencePiece model, or damaged"),
        (lambda data: data.replace(b"<unk>", b"\xff\xfe\xfd\xfc\xfb"), "is no SentencePiece model, or damaged"),
    ],
)
def test_damaged_models(corpus, tmp_path, damage, sentence):
    (tmp_path / "a.model").write_bytes(damage(fit(corpus[:50], vocab_size=100)))
    with pytest.raises(UserError, match=rf"tokenizer.path=.*a.model cannot be read as a tokenizer: it {sentence}"):
        tokenize.load(schema.Tokenizer(path=str(tmp_path / "a.model")), [], Log())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (dict(model_type="word"), "it is a model of words or characters"),
        (dict(treat_whitespace_as_suffix=True), "it marks spaces in another way"),
    ],
)
def test_models_that_are_not_supported(corpus, tmp_path, settings, sentence):
    (tmp_path / "a.model").write_bytes(fit(corpus[:50], vocab_size=100, **settings))
    with pytest.raises(UserError, match=sentence):
        tokenize.load(schema.Tokenizer(path=str(tmp_path / "a.model")), [], Log())


def train(texts, vocab=300):
    return tokenize.train(schema.Tokenizer("unigram", vocab), texts)


def test_a_small_text_trains_fewer_tokens():
    tokenizer = train(["a bb a"], 8192)
    assert 7 < tokenizer.get_vocab_size() < 20
    assert tokenize.special_tokens(tokenizer) == (0, 1, 2, 3, 4)
    assert tokenizer.decode(tokenizer.encode("bb a", add_special_tokens=False).ids) == "bb a"


def test_no_line_is_passed_over(capfd):
    """Lines longer than the trainer takes, with and without spaces, and with a character that it keeps for itself."""
    tokenizer = train(["long " * 5000 + "q", "z" * 9000, "k \u2585 k", "nul \0"])
    assert all(tokenizer.token_to_id(letter) is not None for letter in "qzk")
    assert "".join(capfd.readouterr()) == "", "the trainer keeps quiet"


def test_words_stay_whole_where_long_lines_are_cut():
    lines = list(sentencepiece_model._lines(["some words " * 1000]))
    assert max(map(len, lines)) <= 1000
    assert {word for line in lines for word in line.split()} == {"some", "words"}


def test_decomposed_text_is_composed():
    tokenizer = train(["ấu a\u0302\u0301u 가 \u1100\u1161 ｶﾞ ガ ﬁx fix"])
    for composed, decomposed in [("ấu", "a\u0302\u0301u"), ("가", "\u1100\u1161"), ("ｶﾞ", "ガ"), ("ﬁx", "fix")]:
        assert tokenizer.encode(composed).ids == tokenizer.encode(decomposed).ids
        assert tokenizer.token_to_id("[UNK]") not in tokenizer.encode(composed).ids


def test_training_twice_is_the_same(corpus):
    assert train(corpus).to_str() == train(corpus).to_str()


def test_more_characters_than_tokens():
    with pytest.raises(
        UserError,
        match=r"--tokenizer.vocab=300 is too small for a text of 5,000 different characters; raise it, or take",
    ):
        train(["".join(chr(0x4E00 + n) for n in range(5000))])
    rare = train(["plain words " * 50_000 + "".join(chr(0x4E00 + n) for n in range(2000))])
    kept = [token for token in rare.get_vocab() if len(token) == 1]
    assert len(kept) <= 150, "half of the vocabulary is for characters; the rare ones are unknown"


def test_a_text_of_nothing_is_refused(capfd):
    with pytest.raises(UserError, match="cannot be trained on this text, take bpe or wordpiece"):
        train(["\u200b"])
    assert capfd.readouterr().err == ""


def test_the_forecast_comes_before_the_work(corpus, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TFM_CACHE", str(tmp_path))
    monkeypatch.setattr(sentencepiece_model, "train", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tokenize.load(schema.Tokenizer("unigram", 300), ["a" * 1_000_000] * 3, Log())
    assert re.match(
        r"training a unigram tokenizer of 300 tokens on 3.0 million characters, .* about \d+ s\n",
        capsys.readouterr().err,
    )


def test_python_goes_on_while_the_trainer_works(corpus):
    """Progress and Ctrl-C need a turn: the trainer may not hold the interpreter."""
    ticks, over = [], threading.Event()

    def tick():
        while not over.wait(0.01):
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    train(corpus * 20, 2000)
    took = time.perf_counter() - start
    over.set()
    thread.join()
    assert len(ticks) > 10 * took, "less than every tenth turn was had"
