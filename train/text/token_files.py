"""Files of tokens: vocab.txt, and vocab.json with merges.txt."""

import warnings
from codecs import BOM_UTF8
from pathlib import Path
from typing import Annotated

from tfm.options.choices import Range, check_type
from tfm.options.json_text import read_object, read_text

# The ids of tokens.
MAX_ID = (1 << 24) - 1


def read_lines(path: Path) -> dict[str, int]:
    """A token on every line, its id the line's number. Raises ValueError for an empty line, or a token of two lines."""
    if path.read_bytes().startswith(BOM_UTF8):
        warnings.warn(
            f"{path} begins with a byte order mark, which is left out; transformers reads it as a part of the first "
            "token",
            stacklevel=2,
        )
    ids: dict[str, int] = {}
    for line_number, word in enumerate(read_text(path).replace("\r\n", "\n").rstrip("\n").split("\n"), start=1):
        if not word:
            raise ValueError(f"line {line_number} of {path.name} is empty, where a token must stand")
        if word in ids:
            raise ValueError(f"line {line_number} of {path.name} repeats {word!r} of line {ids[word] + 1}")
        ids[word] = len(ids)
    return ids


def read_vocab(path: Path) -> dict[str, int]:
    """Tokens and their ids, in a file of JSON. Raises ValueError where there is none, or something else."""
    if not path.exists():
        raise ValueError(f"{path.name} is missing")
    return check_type(path.name, read_object(path), dict[str, Annotated[int, Range(0, MAX_ID)]])


def read_pairs(vocab: Path, merges: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Tokens and their ids, and a merge on every line, of which the first may be a comment.

    Raises ValueError for a merge whose parts, or whose result, are no tokens.
    """
    ids, pairs = read_vocab(vocab), _read_merges(merges)
    for line_number, pair in pairs.items():
        for token in (*pair, "".join(pair)):
            if token not in ids:
                raise ValueError(
                    f"line {line_number} of {merges.name} merges {' and '.join(pair)}, and {vocab.name} has no "
                    f"{token}; they are of two tokenizers, or damaged"
                )
    return ids, [*pairs.values()]


def _read_merges(path: Path) -> dict[int, tuple[str, str]]:
    """The merges of a file by the numbers of their lines."""
    if not path.exists():
        raise ValueError(f"{path.name} is missing")
    merges = {}
    for line_number, line in enumerate(read_text(path).splitlines(), start=1):
        parts = line.split()
        if (line_number == 1 and line.startswith("#version")) or not parts:
            continue
        if len(parts) != 2:
            raise ValueError(f"line {line_number} of {path.name} has {len(parts)} parts, and a merge has two")
        merges[line_number] = (parts[0], parts[1])
    return merges
