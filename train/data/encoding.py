"""Documents of any size as token ids, piece by piece: as many characters at a time as the tokenizer's threads need."""

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from train.text import control_tokens

# Characters of a piece of a text, of the pieces that are tokenized together, of a line beside a cut, and of the parts
# in which a text is looked through.
_PIECE, _BATCH, _LINE, CHUNK = 50_000, 800_000, 1_000, 1 << 20

# A single line break.
_BREAK = re.compile(r"(?<=\S)\n(?=\S)")

# A text in chunks, in their order.
Document = Iterable[str]


class EncodedPiece(NamedTuple):
    """The ids of a part of a document, int64, and its characters; `is_last` at the end of the document."""

    ids: np.ndarray
    is_last: bool
    characters: int


def chunks(text: str) -> Iterator[str]:
    """A text as a document."""
    return (text[start : start + CHUNK] for start in range(0, max(len(text), 1), CHUNK))


def encode_documents(tokenizer, documents: Iterable[Document]) -> Iterator[EncodedPiece]:
    """The ids of documents in their order, without marks; what is in memory does not grow with a document."""
    for batch in _batches(tokenizer, documents):
        for piece, ids in zip(batch, _encode(tokenizer, batch), strict=True):
            yield EncodedPiece(ids, piece.is_last, len(piece.text) - piece.context)


class _Piece(NamedTuple):
    """A part of a text, after the line before it: the tokens of its first `context` characters are not its own."""

    text: str
    context: int
    is_last: bool


def _batches(tokenizer, documents: Iterable[Document]) -> Iterator[list[_Piece]]:
    """Pieces of documents, in lists of about _BATCH characters."""
    batch: list[_Piece] = []
    size = 0
    for document in documents:
        for piece in _pieces(tokenizer, document):
            batch.append(piece)
            size += len(piece.text) + 100  # an empty text is some work too
            if size >= _BATCH:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def _pieces(tokenizer, document: Document) -> Iterator[_Piece]:
    """A text cut before or after single line breaks, where no token spans the cut.

    A piece is read after the line before it, as in the whole text. Llama's tokenizer puts a space before a text:
    without that line, the first word of every piece would get one.
    """
    text, context, searched = "", 0, 0
    for chunk in itertools.chain(document, [None]):
        text += chunk or ""
        while cut := _cut(tokenizer, text, context, searched, is_end=chunk is None):
            place, line = cut
            yield _Piece(text[:place], context, False)
            text, context, searched = text[line:], place - line, 0
        searched = max(0, len(text) - _LINE - 1)
    yield _Piece(text, context, True)


def _cut(tokenizer, text: str, start: int, searched: int, is_end: bool) -> tuple[int, int] | None:
    """The first place to cut a text, _PIECE characters or more behind `start`, and where the line before it begins.

    None where there is none behind the place up to which the text was `searched`, or where what follows it is not
    there yet, which is all the same at the end of the text.
    """
    for line_break in _BREAK.finditer(text, max(searched, start + _PIECE - 1)):
        end = line_break.end()
        if end + _LINE > len(text) and not is_end:
            return None
        line = max(text.rfind("\n", start, line_break.start()) + 1, end - _LINE, start)
        (window,) = control_tokens.encode(tokenizer, [text[line : end + _LINE]])
        for place in (line_break.start(), end):
            if place > line and not any(first < place - line < last for first, last in window.offsets):
                return place, line
    return None


def _encode(tokenizer, pieces: list[_Piece]) -> list[np.ndarray]:
    """The ids of each piece, int64, without those of its context."""
    # Places of tokens in the text are computed where they are needed: M63.
    offsets = any(piece.context for piece in pieces)
    encodings = control_tokens.encode(tokenizer, [piece.text for piece in pieces], offsets=offsets)
    in_context = zip(pieces, encodings, control_tokens.ids_of(tokenizer, encodings), strict=True)
    return [ids[_tokens_before(encoding, piece.context) :] for piece, encoding, ids in in_context]


def _tokens_before(encoding, context: int) -> int:
    """The number of tokens in the first `context` characters of an encoded text."""
    return bisect.bisect_right(encoding.offsets, context, key=lambda offsets: offsets[1]) if context else 0
