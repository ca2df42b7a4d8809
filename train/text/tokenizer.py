"""Tokenizers: trained here, or read from a file. All of them are `tokenizers.Tokenizer` objects with the five roles below."""

import contextlib
import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from train import UserError
from train.files import cache
from train.settings import schema
from train.text import kinds, sentencepiece

# The role a special token plays, and the names it goes by. A tokenizer that lacks one is given the first.
ROLES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>", "<|begin_of_text|>", "<bos>"),
    "sep": ("[SEP]", "</s>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<eos>"),
    "mask": ("[MASK]", "<mask>"),
}


class Specials(NamedTuple):
    """Ids of the special tokens, by role."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


class Marks(NamedTuple):
    """What a translation model finds around texts: tokens before and after each of them, what its own text begins with, and padding.

    Its text is written behind `begin`, and ends at the last of `after`.
    """

    before: list[int]
    after: list[int]
    start: int
    pad: int

    @property
    def begin(self) -> list[int]:
        """What stands before the text that it writes."""
        return [self.start, *self.before]

    def around(self, text: Iterable[int]) -> list[int]:
        """A text between its marks."""
        return [*self.before, *text, *self.after]


def load(options: schema.Tokenizer, texts: Sequence[str], log):
    """The tokenizer that the options describe: read from `path`, or trained on the texts and cached by what it was trained on."""
    from tokenizers import Tokenizer

    if options.path:
        return _with_roles(read(Path(options.path), options.lower), options.path)
    key = cache.digest([options.kind, str(options.vocab), str(options.lower)], texts)
    path = cache.cache_dir() / "tokenizers" / f"{key}.json"
    if not path.exists():
        with log.waiting(_forecast(options, texts)):
            cache.atomic_write(path, train(options, texts).to_str().encode())
    return Tokenizer.from_file(str(path))


def train(options: schema.Tokenizer, texts: Iterable[str]):
    """A new tokenizer of `options.vocab` tokens at most."""
    return kinds.TRAINERS[options.kind](options, [names[0] for names in ROLES.values()], texts)


def read(path: Path, lower: bool):
    """The tokenizer in a file, or in a folder that holds one, as kinds.READERS lists them. Raises UserError for anything else."""
    if path.is_dir():
        path = _file_in(path)
    if not path.exists():
        raise UserError(f"--tokenizer.path={path} does not exist")
    reader = kinds.READERS.get(path.name) or kinds.READERS.get(f"*{path.suffix}")
    if reader is None:
        raise UserError(
            f"--tokenizer.path={path} is none of tokenizer.json, vocab.txt, encoder.json with vocab.bpe, or a .model"
        )
    try:
        return reader(path, lower)
    except (ValueError, TypeError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--tokenizer.path={path} cannot be read as a tokenizer: {reason}") from error
    except Exception as error:  # the Rust library raises bare Exception for a malformed tokenizer.json
        if type(error) is not Exception:
            raise
        raise UserError(f"--tokenizer.path={path} is not a tokenizer.json: {error}") from error


def specials(tokenizer) -> Specials:
    """The ids behind the roles. Tokenizers from elsewhere may lack some: padding then is the end of a text, what begins a text is padding,
    and nothing can be masked (-1)."""
    vocab = tokenizer.get_vocab()
    found = {role: next((vocab[name] for name in names if name in vocab), -1) for role, names in ROLES.items()}
    found["sep"] = max(found["sep"], 0)
    found["pad"] = found["sep"] if found["pad"] < 0 else found["pad"]
    found["unk"] = found["pad"] if found["unk"] < 0 else found["unk"]
    found["cls"] = found["pad"] if found["cls"] < 0 else found["cls"]
    return Specials(**found)


def marks(tokenizer, start: str = "") -> Marks:
    """The marks around texts and translations: [SEP] ends them and [CLS] begins a translation. Where its `start` is another token, they are
    marked as the tokenizer does it, which is how models of transformers learn. Raises UserError where there is no such token."""
    special = specials(tokenizer)
    if not start:
        return Marks([], [special.sep], special.cls, special.pad)
    number = tokenizer.token_to_id(start)
    if number is None:
        raise UserError(
            f"--task.start={start} is no token of the tokenizer; leave it out, or name one such as {tokenizer.id_to_token(0)}"
        )
    before, _, after = _added(tokenizer, "a")
    return Marks(before, after or [special.sep], number, special.pad)


def before(tokenizer) -> list[int]:
    """What the tokenizer puts before a text: of models of transformers, what a language model finds there."""
    return _added(tokenizer, "a")[0]


def between(tokenizer) -> int:
    """How many [SEP] stand between the two texts of a pair: one, or as many as the tokenizer puts there itself (RoBERTa: 2)."""
    return max(1, len(_added(tokenizer, "a", "a")[1]))


def _added(tokenizer, *texts: str) -> list[list[int]]:
    """The tokens that a tokenizer adds itself before, between and after texts (between: none where there is but one)."""
    whole = tokenizer.encode(*texts)
    inner = [n for n, added in enumerate(whole.special_tokens_mask) if not added]
    first, last = (inner[0], inner[-1]) if inner else (0, -1)
    middle = [whole.ids[n] for n in range(first, last) if whole.special_tokens_mask[n]]
    return [whole.ids[:first], middle, whole.ids[last + 1 :]]


def words(text: str, encoding) -> tuple[list[str], list[int]]:
    """The words of a text, and the number of the first token of each."""
    ids = encoding.word_ids
    starts = [n for n in range(len(ids)) if n == 0 or ids[n] != ids[n - 1]]
    ends = [encoding.offsets[after - 1][1] for after in (*starts[1:], len(ids))]
    return [text[encoding.offsets[start][0] : end].strip() for start, end in zip(starts, ends, strict=True)], starts


def fingerprint(tokenizer) -> str:
    """A hash of the whole tokenizer."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:16]


@contextlib.contextmanager
def dropping(tokenizer, dropout: float) -> Iterator[None]:
    """A BPE tokenizer that leaves out merges at random meanwhile. Raises UserError for another kind."""
    if dropout and not hasattr(tokenizer.model, "dropout"):
        kind = type(tokenizer.model).__name__
        raise UserError(
            f"--tokenizer.dropout={dropout} leaves out merges, which a {kind} tokenizer has not; add --tokenizer.kind=bpe"
        )
    if dropout:
        tokenizer.model.dropout = dropout
    try:
        yield
    finally:
        if dropout:
            tokenizer.model.dropout = None


def alphabetic(tokenizer) -> np.ndarray:
    """bool [vocabulary]: pieces made of letters, whatever mark the tokenizer puts before or within words."""
    pieces = (tokenizer.decode([i], skip_special_tokens=False) for i in range(tokenizer.get_vocab_size()))
    return np.array([piece.strip().removeprefix("##").lstrip("\u2581").isalpha() for piece in pieces])


def continues(tokenizer) -> np.ndarray:
    """bool [vocabulary]: tokens that go on with the word of the token before, for masking whole words; a special token never does.

    WordPiece marks such pieces itself. BPE and Unigram mark a word's first, by the space before it, so a piece of letters and digits
    without that mark goes on; so does a byte that goes on with a character. Tokenizers of whole words, or of characters, have none.
    The first token of a text starts a word whatever is said here: byte-level BPE leaves it without a space.
    """
    from tokenizers import models

    kind, size = tokenizer.model, tokenizer.get_vocab_size()
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    if isinstance(kind, models.WordLevel):
        return np.zeros(size, bool)
    if isinstance(kind, models.WordPiece):
        goes_on = lambda i: tokenizer.id_to_token(i).startswith(kind.continuing_subword_prefix)
    else:
        goes_on = _goes_on(tokenizer)
    return np.array([i not in special and goes_on(i) for i in range(size)])


def _forecast(options: schema.Tokenizer, texts: Sequence[str]) -> str:
    """What is said before training."""
    what = f"training a {options.kind} tokenizer of {options.vocab} tokens"
    if options.kind != "unigram":
        return what
    return f"{what} on {sum(map(len, texts)) / 1e6:.1f} million characters, the slowest kind: about {sentencepiece.seconds(texts):.0f} s"


def _file_in(folder: Path) -> Path:
    """The tokenizer's file in a folder: one with a known name, or its only .model."""
    names = [name for name in kinds.READERS if not name.startswith("*")]
    models = sorted(folder.glob("*.model"))
    found = [folder / name for name in names if (folder / name).exists()] or models[: len(models) == 1]
    if not found:
        several = f", but {len(models)} .model files: name one of them" if models else ""
        raise UserError(f"--tokenizer.path={folder} holds none of {', '.join(names)}{several}")
    return found[0]


def _goes_on(tokenizer) -> Callable[[int], bool]:
    """Whether a token of BPE or Unigram has no mark of a new word and is made of letters and digits, or is a character's later byte."""
    from tokenizers import decoders, pre_tokenizers

    later = range(0x80, 0xC0)  # in UTF-8
    symbol = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
    byte_level = isinstance(tokenizer.decoder, decoders.ByteLevel)
    # The character U+00nn is the bytes C2 nn for these: the second of its symbols stands for the byte itself.
    inner = {symbol(chr(byte))[0][0][1] for byte in later} if byte_level else {f"<0x{byte:02X}>" for byte in later}

    def goes_on(token: int) -> bool:
        piece, text = tokenizer.id_to_token(token), tokenizer.decode([token], skip_special_tokens=False)
        if (piece[:1] if byte_level else piece) in inner:
            return True
        return (
            not piece.startswith(sentencepiece.SPACE)
            and text != ""
            and all(unicodedata.category(letter)[0] in "LMN" for letter in text)
        )

    return goes_on


def _with_roles(tokenizer, path: str):
    """Makes the tokens of all roles special, and adds those that the tokenizer lacks."""
    vocab = tokenizer.get_vocab()
    tokenizer.add_special_tokens(
        [next((name for name in names if name in vocab), names[0]) for names in ROLES.values()]
    )
    size, last = tokenizer.get_vocab_size(), max(tokenizer.get_vocab().values())
    if last >= size:
        raise UserError(
            f"--tokenizer.path={path} numbers its {size} tokens up to {last}; remove gaps and repeated lines"
        )
    return tokenizer
