"""Tokenizers: trained here, or read from a file. All of them are `tokenizers.Tokenizer` objects with the five roles below."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from train import UserError, cache, config

# The role a special token plays, and the names it goes by. A tokenizer that lacks one is given the first.
ROLES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>"),
}


class Specials(NamedTuple):
    """Ids of the special tokens, by role."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


def load(options: config.Tokenizer, texts: Sequence[str], progress):
    """The tokenizer that the options describe: read from `path`, or trained on the texts and cached by what it was trained on."""
    from tokenizers import Tokenizer

    if options.path:
        return _with_roles(read(Path(options.path), options.lower), options.path)
    key = cache.digest([options.kind, str(options.vocab), str(options.lower)], texts)
    path = cache.folder() / "tokenizers" / f"{key}.json"
    if not path.exists():
        progress(f"training a {options.kind} tokenizer of {options.vocab} tokens")
        cache.write(path, train(options, texts).to_str().encode())
    return Tokenizer.from_file(str(path))


def train(options: config.Tokenizer, texts: Iterable[str]):
    """A new tokenizer of `options.vocab` tokens at most."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    specials = [names[0] for names in ROLES.values()]
    common: dict[str, Any] = {"vocab_size": options.vocab, "special_tokens": specials, "show_progress": False}
    trainer: Any
    if options.kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=options.lower)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(**common)
    elif options.kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **common)
    else:
        tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        tokenizer.decoder = decoders.Fuse()
        trainer = trainers.WordLevelTrainer(**common)
    tokenizer.train_from_iterator(texts, trainer)
    return _with_template(tokenizer)


def read(path: Path, lower: bool):
    """A tokenizer.json, a vocab.txt (WordPiece), or encoder.json beside vocab.bpe (GPT-2). Raises UserError for anything else."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    if path.is_dir():
        known = ("tokenizer.json", "vocab.txt", "encoder.json")
        found = [path / name for name in known if (path / name).exists()]
        if not found:
            raise UserError(f"--tokenizer.path={path} holds none of {', '.join(known)}")
        path = found[0]
    if not path.exists():
        raise UserError(f"--tokenizer.path={path} does not exist")
    try:
        if path.name == "vocab.txt":
            words = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
            words += [] if "[UNK]" in words else ["[UNK]"]  # the model itself needs it
            tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
            tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower)
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            tokenizer.decoder = decoders.WordPiece()
            return _with_template(tokenizer)
        if path.name in ("encoder.json", "vocab.bpe"):
            vocab = json.loads((path.parent / "encoder.json").read_text(encoding="utf-8"))
            lines = (path.parent / "vocab.bpe").read_text(encoding="utf-8").splitlines()
            merges = [(left, right) for left, right in (line.split() for line in lines[1:] if line)]
            tokenizer = Tokenizer(models.BPE(vocab, merges))
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            tokenizer.decoder = decoders.ByteLevel()
            return tokenizer
        if path.suffix == ".json":
            return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except (ValueError, TypeError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--tokenizer.path={path} cannot be read as a tokenizer: {reason}") from error
    except Exception as error:  # the Rust library raises bare Exception for a malformed tokenizer.json
        if type(error) is not Exception:
            raise
        raise UserError(f"--tokenizer.path={path} is not a tokenizer.json: {error}") from error
    raise UserError(f"--tokenizer.path={path} is none of tokenizer.json, vocab.txt, encoder.json with vocab.bpe")


def specials(tokenizer) -> Specials:
    """The ids behind the roles."""
    vocab = tokenizer.get_vocab()
    return Specials(*(next(vocab[name] for name in names if name in vocab) for names in ROLES.values()))


def fingerprint(tokenizer) -> str:
    """A hash of the whole tokenizer."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:16]


def alphabetic(tokenizer) -> np.ndarray:
    """bool [vocabulary]: pieces made of letters, whatever mark the tokenizer puts before or within words."""
    pieces = (tokenizer.decode([i], skip_special_tokens=False) for i in range(tokenizer.get_vocab_size()))
    return np.array([piece.strip().removeprefix("##").lstrip("\u2581").isalpha() for piece in pieces])


def _with_roles(tokenizer, path: str):
    """Makes the tokens of all roles special, and adds those that the tokenizer lacks."""
    vocab = tokenizer.get_vocab()
    tokenizer.add_special_tokens([next((name for name in names if name in vocab), names[0]) for names in ROLES.values()])
    size, last = tokenizer.get_vocab_size(), max(tokenizer.get_vocab().values())
    if last >= size:
        raise UserError(f"--tokenizer.path={path} numbers its {size} tokens up to {last}; remove gaps and repeated lines")
    return tokenizer


def _with_template(tokenizer):
    """Lets the saved file wrap a text in [CLS] and [SEP], as other readers of tokenizer.json expect of BERT."""
    from tokenizers import processors

    ids = tokenizer.get_vocab()
    if "[CLS]" in ids and "[SEP]" in ids:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
        )
    return tokenizer
