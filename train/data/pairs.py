"""Sentences of documents, and one or two texts as a row: `[CLS] A [SEP]`, `[CLS] A [SEP] B [SEP]`."""

import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np

from train.text.special import SpecialTokens

# A sentence ends at a stop before a capital, a digit or a line break, and at an empty line.
_END = re.compile(r"""[.!?]["')\]\u201d\u2019]*(?:\s+(?=["'(\[\u201c\u2018]*[A-Z0-9])|[ \t]*\n)|\n\s*\n""")


def split(documents: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """All sentences, and the document of each, int [N]."""
    by_document = [_sentences(document) for document in documents]
    document = np.repeat(np.arange(len(by_document)), [len(group) for group in by_document])
    return [sentence for group in by_document for sentence in group], document


def _sentences(document: str) -> list[str]:
    places = [0, *(end.end() for end in _END.finditer(document)), len(document)]
    return [part for start, end in itertools.pairwise(places) if (part := document[start:end]).strip()]


def fill(fields: Mapping[str, np.ndarray], place: tuple[int, ...], ids: np.ndarray, second: int, kind: int = 1):
    """Writes a row of tokens into the fields tokens, types and valid [...,T].

    Its second text, of the type `kind`, starts at `second`.
    """
    fields["tokens"][place][: len(ids)] = ids
    fields["valid"][place][: len(ids)] = 1
    fields["types"][place][second : len(ids)] = kind


def join(
    texts: Sequence[np.ndarray], length: int, specials: SpecialTokens, separators: int = 1
) -> tuple[np.ndarray, int]:
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` of at most `length` tokens, int32, and where B starts.

    `separators` [SEP] stand between A and B. If the pair is too long, the longer text loses its end; both are cut to
    equal halves, and the odd token is that of the longer one, of B where both are as long, as in tokenizers.
    """
    if len(texts) == 1:
        row = np.concatenate([[specials.cls], texts[0][: length - 2], [specials.sep]]).astype(np.int32)
        return row, len(row)
    a, b = texts
    max_tokens = length - 2 - separators
    a = a[: max(max_tokens - len(b), (max_tokens + (len(a) > len(b))) // 2)]
    b = b[: max_tokens - len(a)]
    row = np.concatenate([[specials.cls], a, [specials.sep] * separators, b, [specials.sep]]).astype(np.int32)
    return row, len(a) + 1 + separators
