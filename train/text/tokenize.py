"""Tokenizers, trained or read from a file: `tokenizers.Tokenizer` objects with five special tokens."""

import dataclasses
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from train import UserError
from train.files import cache
from train.settings import schema
from train.settings.gate import user_errors
from train.text import hf_roles, sentencepiece_model, sentinels, tokenizer_classes, tokenizer_kinds
from train.text.special import ROLES, AnyTokenizer, ConfiguredTokenizer, added_tokens, special_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from tfm.config.model import Config

BERT_CASING = tokenizer_kinds.Casing()

# Characters of a word that trainers see: the time that they take grows with the square of it.
_LONGEST_WORD = 1000
_LONGER_WORD = re.compile(rf"(?<!\S)\S{{{_LONGEST_WORD + 1},}}")


class SequenceTemplate(NamedTuple):
    """The special tokens of a translation model: around every text, at the decoder's start, padding.

    A translation is written after `decoder_prefix`, and ends with the last token of `suffix`. A model of transformers
    writes the prefix itself. `target_frame` has prefix and suffix of translations, where they are others.
    """

    prefix: list[int]
    suffix: list[int]
    decoder_start: int
    pad: int
    writes_prefix: bool = False
    target_frame: tuple[list[int], list[int]] | None = None

    @property
    def frames(self) -> tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]:
        """Prefix and suffix of a source, and of a translation."""
        source = (self.prefix, self.suffix)
        return source, self.target_frame or source

    @property
    def target(self) -> tuple[list[int], list[int]]:
        """Prefix and suffix of a translation."""
        return self.frames[1]

    @property
    def decoder_prefix(self) -> list[int]:
        """The tokens before the first word of a translation."""
        return [self.decoder_start] if self.writes_prefix else [self.decoder_start, *self.target[0]]

    def wrap(self, ids: Iterable[int]) -> list[int]:
        """A text with its prefix and suffix."""
        return [*self.prefix, *ids, *self.suffix]


def load(options: schema.Tokenizer, texts: Sequence[str], log):
    """The tokenizer that the options describe: read from `path`, or trained on the texts and cached."""
    from tokenizers import Tokenizer

    if options.path:
        casing = tokenizer_kinds.Casing(options.lower, options.strip_accents)
        tokenizer = _with_roles(_configured(read(Path(options.path), casing), Path(options.path)), options.path)
        sentinels.add(tokenizer, options.sentinels)
        return tokenizer
    key = cache.digest([options.kind, str(options.vocab), f"{options.lower} {options.strip_accents}"], texts)
    path = cache.cache_dir() / "tokenizers" / f"{key}.json"

    def make() -> None:
        with log.waiting(_training_message(options, texts)):
            cache.write(path, train(options, texts).to_str().encode())

    tokenizer = Tokenizer.from_buffer(bytes(cache.entry(path, make)))
    sentinels.add(tokenizer, options.sentinels)
    return tokenizer


def train(options: schema.Tokenizer, texts: Iterable[str]):
    """A new tokenizer of at most `options.vocab` tokens."""
    roles = [names[0] for names in ROLES.values()]
    return tokenizer_kinds.TRAINERS[options.kind](options, roles, short_words(texts))


def short_words(texts: Iterable[str]) -> Iterator[str]:
    """The texts, cut within words that are longer than _LONGEST_WORD."""
    for text in texts:
        start = 0
        for word in _LONGER_WORD.finditer(text):
            for cut in range(word.start() + _LONGEST_WORD, word.end(), _LONGEST_WORD):
                yield text[start:cut]
                start = cut
        yield text[start:]


def read(path: Path, casing: tokenizer_kinds.Casing = BERT_CASING):
    """The tokenizer in a file, or in a folder. Raises UserError where neither has one.

    A folder's tokenizer_config.json says how its vocabulary is read; else the first file of tokenizer_kinds.READERS
    counts.
    """
    try:
        if path.is_dir() and (path / "tokenizer_config.json").exists() and not (path / "tokenizer.json").exists():
            return tokenizer_classes.read(path)
        if path.is_dir():
            path = _file_in(path)
        return _reader(path)(path, casing)
    except (ValueError, TypeError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--tokenizer.path={path} cannot be read as a tokenizer: {reason}") from error


def _reader(path: Path) -> Callable[[Path, tokenizer_kinds.Casing], "Tokenizer"]:
    """The function that reads a file. Raises UserError where there is none, or no file."""
    if not path.exists():
        raise UserError(f"--tokenizer.path={path} does not exist")
    reader = tokenizer_kinds.READERS.get(path.name) or tokenizer_kinds.READERS.get(f"*{path.suffix}")
    if reader is None:
        raise UserError(
            f"--tokenizer.path={path} is none of tokenizer.json, vocab.txt, vocab.json with merges.txt, or a .model"
        )
    return reader


def sequence_template(tokenizer, start: str = "") -> SequenceTemplate:
    """The special tokens of a translation model: [SEP] ends a text and [CLS] starts a translation.

    Models of transformers name another `start`; the tokenizer then adds prefix and suffix. Raises UserError where it
    has no such token.
    """
    special = special_tokens(tokenizer)
    if not start:
        return SequenceTemplate([], [special.sep], special.cls, special.pad)
    start_id = tokenizer.token_to_id(start)
    if start_id is None:
        raise UserError(
            f"--task.start={start} is no token of the tokenizer; leave it out, or name one such as "
            f"{tokenizer.id_to_token(0)}"
        )
    prefix, _, suffix = added_tokens(tokenizer, "a")
    return SequenceTemplate(prefix, suffix or [special.sep], start_id, special.pad)


def writing_model(model: "Config", tokenizer: AnyTokenizer) -> "Config":
    """The model of which only tokens of the tokenizer are written: a table may have rows behind the last one."""
    if tokenizer.get_vocab_size() >= model.outputs:
        return model
    unknown = model.vocab - 1 - max(tokenizer.get_vocab().values())
    if unknown <= model.head.input_only:
        return model
    return dataclasses.replace(model, head=dataclasses.replace(model.head, input_only=unknown))


def prefix_tokens(tokenizer) -> list[int]:
    """The tokens that the tokenizer itself puts before a text, as language models of transformers expect them."""
    return added_tokens(tokenizer, "a")[0]


def pair_separators(tokenizer) -> int:
    """The number of [SEP] between the texts of a pair: 1, or what the tokenizer itself adds (RoBERTa: 2)."""
    return max(1, len(added_tokens(tokenizer, "a", "a")[1]))


def words(text: str, encoding) -> tuple[list[str], list[int]]:
    """The words of a text, and the index of the first token of each."""
    ids = encoding.word_ids
    starts = [n for n in range(len(ids)) if n == 0 or ids[n] != ids[n - 1]]
    ends = [encoding.offsets[after - 1][1] for after in (*starts[1:], len(ids))]
    return [text[encoding.offsets[start][0] : end].strip() for start, end in zip(starts, ends, strict=True)], starts


def fingerprint(tokenizer) -> str:
    """A hash of the whole tokenizer."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:16]


def is_alphabetic(tokenizer) -> np.ndarray:
    """bool [V]: whether a token is made of letters, apart from the tokenizer's mark before or within words."""
    pieces = (tokenizer.decode([i], skip_special_tokens=False) for i in range(tokenizer.get_vocab_size()))
    return np.array([piece.strip().removeprefix("##").lstrip("\u2581").isalpha() for piece in pieces])


def continues_word(tokenizer) -> np.ndarray:
    """bool [V]: whether a token continues the word of the token before it; special tokens do not.

    WordPiece marks such tokens itself. BPE and Unigram mark the first token of a word, by the space before it: a
    token of letters and digits without that mark continues a word, and so does a later byte of a character. Tokens of
    word and character tokenizers never do. The first token of a text may say otherwise: byte-level BPE leaves it
    without a space.
    """
    from tokenizers import models

    model, size = tokenizer.model, tokenizer.get_vocab_size()
    if isinstance(model, models.WordLevel):
        return np.zeros(size, bool)
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    continues = _by_prefix(tokenizer) if isinstance(model, models.WordPiece) else _by_space(tokenizer)
    return np.array([i not in special and continues(i) for i in range(size)])


def spellings(tokenizer) -> tuple[list[str], np.ndarray]:
    """The text of every token without marks of the tokenizer, and `continues_word`."""
    continues = continues_word(tokenizer)
    texts = (tokenizer.decode([token], skip_special_tokens=False).strip() for token in range(len(continues)))
    return [text.removeprefix("##") if inner else text for text, inner in zip(texts, continues, strict=True)], continues


def _by_prefix(tokenizer) -> Callable[[int], bool]:
    """Whether a WordPiece token has the prefix of continuations."""
    prefix = tokenizer.model.continuing_subword_prefix
    return lambda token: tokenizer.id_to_token(token).startswith(prefix)


def _by_space(tokenizer) -> Callable[[int], bool]:
    """Whether a BPE or Unigram token is letters and digits without a space, or a later byte of a character.

    The first bytes of a character, U+FFFD where they are decoded alone, count as a letter.
    """
    from tokenizers import decoders, pre_tokenizers

    later = range(0x80, 0xC0)  # in UTF-8
    symbol = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
    byte_level = isinstance(tokenizer.decoder, decoders.ByteLevel)
    # The character U+00nn is the bytes C2 nn for these: the second of its symbols stands for the byte itself.
    inner = {symbol(chr(byte))[0][0][1] for byte in later} if byte_level else {f"<0x{byte:02X}>" for byte in later}

    def continues(token: int) -> bool:
        piece = tokenizer.id_to_token(token)
        text = tokenizer.decode([token], skip_special_tokens=False)
        if (piece[:1] if byte_level else piece) in inner:
            return True
        if piece.startswith(sentencepiece_model.SPACE) or not text:
            return False
        return all(letter == "\ufffd" or unicodedata.category(letter)[0] in "LMN" for letter in text)

    return continues


def _training_message(options: schema.Tokenizer, texts: Sequence[str]) -> str:
    """What the log says before training."""
    message = f"training a {options.kind} tokenizer of {options.vocab} tokens"
    if options.kind != "unigram":
        return message
    millions, seconds = sum(map(len, texts)) / 1e6, sentencepiece_model.seconds(texts)
    return f"{message} on {millions:.1f} million characters, the slowest kind: about {seconds:.0f} s"


def _file_in(folder: Path) -> Path:
    """The tokenizer's file in a folder: the first name of tokenizer_kinds.READERS, or the only .model."""
    names = [name for name in tokenizer_kinds.READERS if not name.startswith("*")]
    models = sorted(folder.glob("*.model"))
    paths = [folder / name for name in names if (folder / name).exists()]
    if not paths and len(models) == 1:
        paths = models
    if not paths:
        several = f", but {len(models)} .model files: name one of them" if models else ""
        raise UserError(f"--tokenizer.path={folder} holds none of {', '.join(names)}{several}")
    return paths[0]


def _configured(tokenizer, path: Path) -> AnyTokenizer:
    """The tokenizer of a file or a folder, with what the configuration beside it says, where there is one."""
    folder = path if path.is_dir() else path.parent
    if not (folder / hf_roles.CONFIG).is_file():
        return tokenizer
    with user_errors(f"--tokenizer.path={path}"):
        return hf_roles.configured(folder, tokenizer, hf_roles.model_fields(folder))


def _with_roles(tokenizer: AnyTokenizer, path: str) -> AnyTokenizer:
    """The tokenizer with a special token for every role; those that it lacks are added."""
    vocab = tokenizer.get_vocab()
    if isinstance(tokenizer, ConfiguredTokenizer):
        lacking = {role: names[0] for role, names in ROLES.items() if role not in tokenizer.ids}
        for role, substitute in (("cls", "bos"), ("sep", "eos")):
            if substitute in tokenizer.ids:
                lacking.pop(role, None)
        tokens = list(lacking.values())
        tokenizer.fields |= {f"{role}_token": token for role, token in lacking.items()}
    else:
        tokens = [next((name for name in names if name in vocab), names[0]) for names in ROLES.values()]
    tokenizer.add_special_tokens(tokens)
    size, last = tokenizer.get_vocab_size(), max(tokenizer.get_vocab().values())
    if last >= size:
        raise UserError(
            f"--tokenizer.path={path} numbers its {size} tokens up to {last}; remove gaps and repeated lines"
        )
    return tokenizer
