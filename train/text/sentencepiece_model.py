"""SentencePiece models (Kudo and Richardson 2018), trained or read from .model files, as `tokenizers.Tokenizer`.

Ids are those of the file; the folders of XLM-R and CamemBERT number tokens anew. Some differences remain. The names of
control and unknown pieces, such as </s>, are special tokens wherever they stand in a text. Of splits with equal scores
(the same pieces in another order) any may be taken. The character map of a file applies to a letter and its marks at
once, and to CR LF: decomposed text (two marks on a letter, Hangul in parts) gives other tokens. Models trained here
have no such map, and compose first, with NFKC. M30: the library's own reader of .model files was tried.
"""

import io
import math
import re
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from train import UserError
from train.text import protobuf

SPACE = "\u2581"

# The kinds of a piece, and of a model, as sentencepiece_model.proto numbers them.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2

# Characters a second, for the forecast (M29).
_RATE = 500_000


class Piece(NamedTuple):
    """One token of a model."""

    text: str
    score: float
    kind: int


class SentencePieceModel(NamedTuple):
    """The content of a .model file: its pieces in the order of their ids, and the rules that prepare a text."""

    pieces: list[Piece]
    kind: int
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool

    def texts(self, *kinds: int) -> list[str]:
        """The texts of all pieces of these kinds."""
        return [piece.text for piece in self.pieces if piece.kind in kinds]


def train(vocab: int, specials: Sequence[str], texts: Iterable[str]):
    """A Unigram tokenizer (Kudo 2018) of at most `vocab` tokens; `specials` come first, in the order of the roles."""
    from tokenizers import normalizers

    clean = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    lines = [clean.normalize_str(line) for line in _lines(texts)]
    try:
        model = _trained(vocab, specials, lines)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"--tokenizer.kind=unigram cannot be trained on this text, take bpe or wordpiece: {reason}"
        ) from error
    tokenizer = convert(parse(model))
    tokenizer.normalizer = normalizers.Sequence([clean, tokenizer.normalizer])
    return tokenizer


def _trained(vocab: int, specials: Sequence[str], lines: Sequence[str]) -> bytes:
    """The .model file that the library trains on the lines."""
    from sentencepiece import SentencePieceTrainer

    pad, unk, bos, eos, control = specials
    model, coverage = io.BytesIO(), _coverage(lines, vocab)

    def work():
        SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab,
            hard_vocab_limit=False,
            character_coverage=coverage,
            normalization_rule_name="identity",
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            pad_piece=pad,
            unk_piece=unk,
            bos_piece=bos,
            eos_piece=eos,
            control_symbols=[control],
            minloglevel=2,
        )

    _interruptibly(work)
    return model.getvalue()


def seconds(texts: Iterable[str]) -> float:
    """An estimate of the training time."""
    return sum(map(len, texts)) / _RATE


def read(path: Path):
    """The tokenizer in a .model file. Raises ValueError where the file is damaged or its kind is not supported."""
    return convert(parse(path.read_bytes()))


def convert(model: SentencePieceModel):
    """A SentencePiece model as a `tokenizers.Tokenizer`."""
    from tokenizers import Tokenizer, decoders

    tokenizer = Tokenizer(_unigram(model) if model.kind == UNIGRAM else _bpe(model))
    tokenizer.normalizer = _normalizer(model)
    splitter = _splitter(model)
    if splitter:
        tokenizer.pre_tokenizer = splitter
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if model.add_dummy_prefix or model.remove_extra_whitespaces:
        steps.append(decoders.Strip(" ", 2**16 if model.remove_extra_whitespaces else 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens(model.texts(CONTROL, UNKNOWN))
    return tokenizer


def parse(data: bytes) -> SentencePieceModel:
    """A .model file (ModelProto of sentencepiece_model.proto) -> its content. Raises ValueError for other bytes."""
    # What wrong types of fields and truncated files raise.
    malformed = (TypeError, AttributeError, IndexError, UnicodeDecodeError, struct.error)
    try:
        messages = list(protobuf.fields(data))
        pieces = [_piece(dict(protobuf.fields(value))) for value in protobuf.repeated(messages, 1)]
        trainer = protobuf.merged(protobuf.repeated(messages, 2))
        rules = protobuf.merged(protobuf.repeated(messages, 3))
        kind, charsmap = protobuf.integer_of(trainer, 3, UNIGRAM), protobuf.bytes_of(rules, 2)
    except malformed as error:
        raise ValueError("it is no SentencePiece model, or damaged") from error
    if not trainer or not rules or [piece.kind for piece in pieces].count(UNKNOWN) != 1:
        raise ValueError("it is no SentencePiece model, or damaged")
    if kind not in (UNIGRAM, BPE):
        raise ValueError("it is a model of words or characters; only unigram and BPE models are read")
    if trainer.get(24, 0) or not rules.get(5, 1):
        raise ValueError("it marks spaces in another way than with \u2581 before a word, which is not supported")
    return SentencePieceModel(pieces, kind, charsmap, bool(rules.get(3, 1)), bool(rules.get(4, 1)))


def _lines(texts: Iterable[str], max_length: int = 1000) -> Iterator[str]:
    """Lines for the trainer. It would skip lines of more than 4192 bytes, and those with its own character U+2585."""
    piece = re.compile(rf".{{1,{max_length}}}(?!\S)|.{{1,{max_length}}}")
    for text in texts:
        yield from piece.findall(text.replace("\u2585", " "))


def _coverage(lines: Iterable[str], vocab: int) -> float:
    """The share of the text whose characters become tokens: all of it, or as much as half of the vocabulary holds."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    share = sum(count for _, count in counts.most_common(vocab // 2)) / max(counts.total(), 1)
    if share < 0.98 and counts:  # the trainer accepts no less
        raise UserError(
            f"--tokenizer.vocab={vocab} is too small for a text of {len(counts):,} different characters; "
            "raise it, or take --tokenizer.kind=bpe"
        )
    return share if counts else 1.0


def _interruptibly(work: Callable[[], object]):
    """Runs `work` in a daemon thread: the main thread must stay in Python to see Ctrl-C."""
    errors: list[BaseException] = []

    def run():
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _unigram(model: SentencePieceModel):
    """Scores for the library: a user's symbol beats all other cuts of its text; control pieces never win."""
    from tokenizers import models

    scores = [piece.score for piece in model.pieces if piece.kind == NORMAL] or [0.0]
    best = max(scores)
    impossible = (min(scores) - 1) * (1 + max(len(piece.text) for piece in model.pieces))

    def score(piece: Piece) -> float:
        if piece.kind == USER_DEFINED:
            return len(piece.text.encode()) * best - 0.1
        return piece.score if piece.kind == NORMAL else impossible

    unknown = next(i for i, piece in enumerate(model.pieces) if piece.kind == UNKNOWN)
    vocab = [(piece.text, score(piece)) for piece in model.pieces]
    return models.Unigram(vocab, unknown, byte_fallback=bool(model.texts(BYTE)))


def _bpe(model: SentencePieceModel):
    """The library merges neighbours that form a piece, best score first: every cut of a piece in two is a merge."""
    from tokenizers import models

    parts = {piece.text: piece.score for piece in model.pieces if piece.kind in (NORMAL, UNUSED)}
    best_first = sorted(parts, key=lambda text: -parts[text])
    cuts = ((text[:at], text[at:]) for text in best_first for at in range(1, len(text)))
    return models.BPE(
        {piece.text: i for i, piece in enumerate(model.pieces)},
        [(left, right) for left, right in cuts if left in parts and right in parts],
        unk_token=model.texts(UNKNOWN)[0],
        fuse_unk=True,
        byte_fallback=bool(model.texts(BYTE)),
        ignore_merges=bool(model.texts(USER_DEFINED)),  # a user's symbol stands alone and has no merges
    )


def _normalizer(model: SentencePieceModel):
    """`cleaner`, and spaces as \u2581."""
    from tokenizers import normalizers

    prefix = [normalizers.Prepend(SPACE)] if model.add_dummy_prefix else []
    return normalizers.Sequence([cleaner(model), *prefix, normalizers.Replace(" ", SPACE)])


def cleaner(model: SentencePieceModel):
    """A normalizer of the character map and of the rules for several spaces."""
    from tokenizers import Regex, normalizers

    steps: list = [character_map(model)]
    if model.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex(rf"\A |[ {SPACE}]+\z"), "")]
    return normalizers.Sequence(steps)


def character_map(model: SentencePieceModel):
    """A normalizer of the character map, which spares users' symbols."""
    from tokenizers import normalizers

    steps: list = [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    symbols = model.texts(USER_DEFINED) if steps else []
    changed = [text for text in symbols if steps[0].normalize_str(text) != text]
    for n, text in enumerate(changed):  # a character of private use hides it from the map
        steps = [normalizers.Replace(text, chr(0xF0000 + n)), *steps, normalizers.Replace(chr(0xF0000 + n), text)]
    return normalizers.Sequence(steps)


def _splitter(model: SentencePieceModel):
    """Cuts before each word if no piece spans two words (words are then cached), and around users' symbols for BPE."""
    from tokenizers import Regex, pre_tokenizers

    steps: list = []
    symbols = sorted(model.texts(USER_DEFINED), key=len, reverse=True)
    if symbols and model.kind == BPE:
        steps.append(pre_tokenizers.Split(Regex("|".join(map(re.escape, symbols))), "isolated"))
    pieces = model.texts(NORMAL, USER_DEFINED, UNUSED)
    # Without a piece for the space itself, an unknown run goes on from word to word.
    if SPACE in pieces and not any(SPACE in text[1:] for text in pieces):
        steps.append(pre_tokenizers.Metaspace(SPACE, prepend_scheme="never"))
    return pre_tokenizers.Sequence(steps) if steps else None


def _piece(message: protobuf.Message) -> Piece:
    """The fields of a SentencePiece message -> Piece."""
    (score,) = struct.unpack("<f", protobuf.bytes_of(message, 2, bytes(4)))
    if not math.isfinite(score):
        raise TypeError(f"score={score}")
    return Piece(protobuf.bytes_of(message, 1).decode(), score, protobuf.integer_of(message, 3, NORMAL))
