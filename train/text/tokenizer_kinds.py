"""The kinds of tokenizers: a function that trains each kind, and a function that reads each kind of file."""

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from tfm.options.json_text import parse_object, read_text
from train.files.suppress_output import suppress_output
from train.settings import schema
from train.text import sentencepiece_model, token_files, tokenizer_faults

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EMPTY = "it has no tokens"


class Casing(NamedTuple):
    """How BERT prepares a text.

    strip_accents: whether letters lose their accents; None: where they are lower-cased
    chinese: whether every Chinese character is a word
    """

    lower: bool = True
    strip_accents: bool | None = None
    chinese: bool = True


def _wordpiece(options: schema.Tokenizer, specials: list[str], texts: Iterable[str]):
    """Words cut into pieces, of which all but a word's first start with ## (Devlin et al. 2018)."""
    from tokenizers import Tokenizer, models, trainers

    tokenizer = _split_as_bert(Tokenizer(models.WordPiece(unk_token="[UNK]")), _casing(options))
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(**_common(options, specials)))
    return _with_template(tokenizer)


def _bpe(options: schema.Tokenizer, specials: list[str], texts: Iterable[str]):
    """Bytes, and merges of the most frequent pairs (Radford et al. 2019): no text is unknown, and decoding is exact.
    With the alphabet of the text (Sennrich et al. 2016), bytes that it has not are lost."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = _split_as_gpt2(Tokenizer(models.BPE()))
    alphabet = pre_tokenizers.ByteLevel.alphabet() if options.alphabet == "bytes" else []
    trainer = trainers.BpeTrainer(initial_alphabet=alphabet, **_common(options, specials))
    tokenizer.train_from_iterator(texts, trainer)
    return _with_template(tokenizer)


def _unigram(options: schema.Tokenizer, specials: list[str], texts: Iterable[str]):
    """The most probable split of a text into pieces (Kudo 2018)."""
    return _with_template(sentencepiece_model.train(options.vocab, specials, texts))


def _word(options: schema.Tokenizer, specials: list[str], texts: Iterable[str]):
    """The most frequent words and punctuation marks; all others are unknown."""
    from tokenizers import Tokenizer, models, trainers

    tokenizer = _split_as_bert(Tokenizer(models.WordLevel(unk_token="[UNK]")), _casing(options))
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(**_common(options, specials)))
    return _with_template(tokenizer)


def _char(options: schema.Tokenizer, specials: list[str], texts: Iterable[str]):
    """The most frequent characters; all others are unknown."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(**_common(options, specials)))
    return _with_template(tokenizer)


# By --tokenizer.kind: what to train.
TRAINERS = {"wordpiece": _wordpiece, "bpe": _bpe, "unigram": _unigram, "word": _word, "char": _char}


class _TrainerOptions(TypedDict):
    vocab_size: int
    special_tokens: list[str]
    show_progress: bool


def _common(options: schema.Tokenizer, specials: list[str]) -> _TrainerOptions:
    """Options of all trainers."""
    return {"vocab_size": options.vocab, "special_tokens": specials, "show_progress": False}


def guarded(build: "Callable[[], Tokenizer]") -> "Tokenizer":
    """The tokenizer that `build` makes, once it has read and written a token.

    Raises ValueError where the library fails: it raises bare Exception, or panics, and prints that.
    """
    try:
        with suppress_output("tokenizers"):
            tokenizer = build()
            vocab = tokenizer.get_vocab()
            tokenizer.encode("")
            tokenizer.decode([min(vocab.values(), default=0)])
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"the tokenizers library refuses it: {error}") from error
    if not vocab:
        raise ValueError(EMPTY)
    if max(vocab.values()) > token_files.MAX_ID:
        raise ValueError(f"it numbers a token {max(vocab.values())}, more than {token_files.MAX_ID}")
    _warn_of_shared_ids(vocab)
    return tokenizer


def _warn_of_shared_ids(vocab: dict[str, int]) -> None:
    """Warns of two tokens with one id, of which chance decides which is written; also in transformers."""
    by_id: dict[int, str] = {}
    for token in sorted(vocab) if len(set(vocab.values())) < len(vocab) else ():
        if (former := by_id.setdefault(vocab[token], token)) != token:
            warnings.warn(
                f"the vocabulary gives {former} and {token} the id {vocab[token]}, and may write one for the other; "
                "correct it",
                stacklevel=2,
            )
            return


def read_own(path: Path):
    """A tokenizer.json, without its truncation, padding and dropout. Raises ValueError where it is damaged.

    Rows here are of other lengths, and a random split belongs to a training, not to a tokenizer; warns of one, and of
    an id that the vocabulary contradicts.
    """
    return read_padded(path)[0]


def read_padded(path: Path) -> "tuple[Tokenizer, dict[str, Any]]":
    """`read_own`, and how the file pads and cuts texts, {} where it does not: `pad_token`, `direction` and more."""
    from tokenizers import Tokenizer

    text = read_text(path)
    values = parse_object(text, str(path))
    model = values.get("model")
    fields = model if isinstance(model, dict) else {}
    ending = fields.get("end_of_word_suffix")
    vocab = fields.get("vocab")
    if ending and not any(token.endswith(str(ending)) for token in (vocab if isinstance(vocab, dict) else ())):
        raise ValueError(f"{path} has end_of_word_suffix={ending}, with which no token ends; correct it")
    try:
        tokenizer = guarded(lambda: Tokenizer.from_str(text))
    except ValueError as error:
        if name := tokenizer_faults.field(values, _is_read):
            raise ValueError(f"{error}; correct {name} of {path.name}, without which it is read") from error
        raise
    sides = {"padding": tokenizer.padding or {}, "truncation": tokenizer.truncation or {}}
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if dropout := getattr(tokenizer.model, "dropout", None):
        warnings.warn(f"{path} has dropout={dropout:g}, a random split; texts are split without it", stacklevel=2)
        tokenizer.model.dropout = None
    for token in values.get("added_tokens") or ():
        if (index := tokenizer.token_to_id(token["content"])) != token["id"]:
            warnings.warn(
                f"{path}: added_tokens gives {token['content']} the id {token['id']}, and as the library reads it that "
                f"is {index}; correct the file, which contradicts itself",
                stacklevel=2,
            )
            break
    return tokenizer, sides


def _is_read(text: str) -> bool:
    """Whether the library reads a tokenizer.json."""
    from tokenizers import Tokenizer

    try:
        guarded(lambda: Tokenizer.from_str(text))
    except ValueError as error:
        return str(error) == EMPTY
    return True


def _read_json(path: Path, casing: Casing):
    """A tokenizer.json; it says itself whether text is lower-cased."""
    return read_own(path)


def _read_wordpiece(path: Path, casing: Casing):
    """A vocab.txt as BERT reads it."""
    return guarded(lambda: _with_template(word_pieces(path, casing)))


def word_pieces(path: Path, casing: Casing, unknown: str = "[UNK]"):
    """A vocab.txt: a WordPiece on each line, its id the line's number."""
    from tokenizers import Tokenizer, models

    ids = token_files.read_lines(path)
    ids.setdefault(unknown, len(ids))  # the model itself needs it
    return _split_as_bert(Tokenizer(models.WordPiece(ids, unk_token=unknown)), casing)


def _read_gpt2(path: Path, casing: Casing):
    """GPT-2's two files: encoder.json and vocab.bpe, vocab.json and merges.txt in transformers."""
    files = (
        ("encoder.json", "vocab.bpe") if path.name in ("encoder.json", "vocab.bpe") else ("vocab.json", "merges.txt")
    )
    return guarded(lambda: _byte_pairs(*(path.parent / name for name in files)))


def _byte_pairs(vocab: Path, merges: Path):
    from tokenizers import Tokenizer, models

    return _split_as_gpt2(Tokenizer(models.BPE(*token_files.read_pairs(vocab, merges))))


def _read_sentencepiece(path: Path, casing: Casing):
    """A SentencePiece model, which brings its own rules for letter case."""
    return guarded(lambda: sentencepiece_model.read(path))


# By the name of a file, else by its ending; in a folder the first name counts.
READERS = {
    "tokenizer.json": _read_json,
    "vocab.txt": _read_wordpiece,
    "encoder.json": _read_gpt2,
    "vocab.bpe": _read_gpt2,
    "vocab.json": _read_gpt2,
    "merges.txt": _read_gpt2,
    "spiece.model": _read_sentencepiece,
    "sentencepiece.model": _read_sentencepiece,
    "sentencepiece.bpe.model": _read_sentencepiece,
    "tokenizer.model": _read_sentencepiece,
    "*.json": _read_json,
    "*.model": _read_sentencepiece,
}


def _casing(options: schema.Tokenizer) -> Casing:
    return Casing(options.lower, options.strip_accents)


def _split_as_bert(tokenizer, casing: Casing):
    """Sets the rules of BERT: words and single punctuation marks."""
    from tokenizers import decoders, normalizers, pre_tokenizers

    tokenizer.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=casing.chinese, strip_accents=casing.strip_accents, lowercase=casing.lower
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _split_as_gpt2(tokenizer):
    """Sets the rules of GPT-2: words with the space before them, a character for each byte."""
    from tokenizers import decoders, pre_tokenizers

    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _with_template(tokenizer):
    """Adds [CLS] and [SEP] around a text to the saved file, as readers of tokenizer.json expect of BERT."""
    from tokenizers import processors

    ids = tokenizer.get_vocab()
    if "[CLS]" in ids and "[SEP]" in ids:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
        )
    return tokenizer


def write_ends(tokenizer: "Tokenizer") -> None:
    """The ends of words, </w>, are spaces in what is written, as the class of CLIP has it beside its decoder."""
    from tokenizers import Regex, decoders

    ends = [decoders.Replace(Regex(r"</w>\z"), ""), decoders.Replace("</w>", " ")]
    if tokenizer.decoder is not None:
        tokenizer.decoder = decoders.Sequence([tokenizer.decoder, *ends])
