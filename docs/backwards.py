"""Pairs of a text and its words backwards: the first 4 to 8 words of paragraphs of the built-in documents.

`python docs/backwards.py FOLDER [COUNT]` writes train.tsv with COUNT pairs (1,000), and valid.tsv with 200 of the
documents that every task holds out.
"""

import random
import re
import sys
from pathlib import Path

from train.data.sources import builtin, files, hold_out


def texts(documents: list[files.Row], seen: set[str]) -> list[str]:
    """The beginnings of paragraphs that are not `seen`, in the order of the alphabet."""
    paragraphs = [paragraph for row in documents for paragraph in re.split(r"\n\s*\n", row["text"])]
    words = [re.findall("[a-z]+", paragraph.lower())[:8] for paragraph in paragraphs]
    return sorted({" ".join(start) for start in words if len(start) >= 4} - seen)


def write(path: Path, lines: list[str]) -> None:
    """A text a line, and its words from the last to the first."""
    rows = [f"{text}\t{' '.join(reversed(text.split()))}\n" for text in lines]
    path.write_text("text\tbackwards\n" + "".join(rows))


if __name__ == "__main__":
    folder, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    rows: list[files.Row] = [{"text": text} for text in builtin.documents()]
    train, valid = hold_out.train_valid_split(rows, files.Columns(("text",)))
    known = texts(train, set())
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "train.tsv", random.Random(0).sample(known, count))
    write(folder / "valid.tsv", random.Random(0).sample(texts(valid, set(known)), 200))
