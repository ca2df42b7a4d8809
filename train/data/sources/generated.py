"""Built-in texts that a generator writes, under names of their own: `--data=NAME[:LENGTH|:LEAST-MOST]`."""

import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from train import UserError
from train.data.sources import files
from train.data.synthetic import in_context, listops, memory, referents
from train.files import cache

# Rows of the validation text, and of the training text, whose tokens are limited too.
_VALID, _TRAIN, _TRAIN_TOKENS = 1_000, 20_000, 4_000_000

# Rows that are drawn before a new one must have come.
_PATIENCE = 1_000


class Marks(NamedTuple):
    """What counts in the loss of a language model: tokens after `begin`, up to `end` or the end of a document."""

    begin: str
    end: str | None = None


class Generator(NamedTuple):
    """Texts of one kind.

    draw: (low, high, random numbers) -> a row, `text` and perhaps `label` and `choices`
    unit: what a length counts
    lengths: the default ones, which fit into the rows of default runs
    limits: the least and the largest length that there is
    tokens: of a text, about, for each of its length
    module: the file that decides the texts
    labelled: whether rows have labels
    chooses: whether a label is the place of a continuation
    marks: what of the text counts; None where all does, or where the label does
    """

    draw: Callable[[int, int, random.Random], files.Row]
    unit: str
    lengths: tuple[int, int]
    limits: tuple[int, int]
    tokens: int
    module: str
    labelled: bool = False
    chooses: bool = False
    marks: Marks | None = None


GENERATORS: Mapping[str, Generator] = {
    "listops": Generator(listops.draw, "symbols", (5, 20), (4, 100_000), 2, listops.__file__, labelled=True),
    "copy": Generator(memory.draw_copy, "letters", (10, 30), (1, 1_000_000), 2, memory.__file__, marks=Marks("=")),
    "recall": Generator(
        memory.draw_recall, "pairs", (4, 14), (1, memory.MAX_PAIRS), 2, memory.__file__, marks=Marks("=", ";")
    ),
    "in-context": Generator(
        in_context.draw, "examples", (9, 9), (1, 10_000), 5, in_context.__file__, marks=Marks("=", ";")
    ),
    "referents": Generator(
        referents.draw, "words before it", (0, 4), (0, 4), 5, referents.__file__, labelled=True, chooses=True
    ),
}


def rows_of(source: str, columns: files.Reader) -> tuple[list[files.Row], list[files.Row]] | None:
    """Training and validation rows of a generator, in the columns of the run; None if `source` names none.

    Raises UserError for bad lengths, and for a task that reads other rows.
    """
    name, colon, lengths = source.partition(":")
    if name not in GENERATORS:
        return None
    generator = GENERATORS[name]
    low, high = _lengths(source, lengths, generator) if colon else generator.lengths
    if not _reads(columns, generator):
        task = "--task=choice" if generator.chooses else "--task=classify" if generator.labelled else "--task=lm or mlm"
        raise UserError(f"--data={source} is for {task}; choose that task, or other data")
    names = dict(zip(("text", "label"), (*columns.texts, *columns.labels), strict=False))
    names |= {"choices": "choices"} if generator.chooses else {}
    train, valid = (
        [{name: row[key] for key, name in names.items()} for row in part]
        for part in _cached(source, generator, low, high)
    )
    return train, valid


def _reads(columns: files.Reader, generator: Generator) -> bool:
    """Whether a task reads rows of a generator."""
    if generator.chooses:
        return columns.texts == ("context",) and not isinstance(columns, files.Columns)
    return isinstance(columns, files.Columns) and (len(columns.texts), len(columns.labels)) == (1, generator.labelled)


def marks_of(source: str) -> Marks | None:
    """What counts in a source; None where all does."""
    name = source.partition(":")[0]
    return GENERATORS[name].marks if name in GENERATORS else None


def check_length(source: str, needed: int, length: int):
    """Raises UserError where the longest text of a generator loses its end, and with it what it asks for."""
    if source.partition(":")[0] in GENERATORS and needed > length:
        raise UserError(
            f"--data={source} has texts of {needed} tokens, and --batch.length={length} cuts them; "
            f"add --batch.length={needed}, or ask for shorter ones"
        )


def _lengths(source: str, text: str, generator: Generator) -> tuple[int, int]:
    """`8` or `4-8` -> the least and the largest length. Raises UserError for others."""
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    name, (least_length, limit) = source.partition(":")[0], generator.limits
    if not match or not least_length <= low <= high <= limit:
        raise UserError(
            f"--data={source} must be {name}, {name}:N or {name}:N-M, of {least_length} to {limit:,} {generator.unit}; "
            f"try {name}:{generator.lengths[0]}-{generator.lengths[1]}"
        )
    return low, high


def _cached(source: str, generator: Generator, low: int, high: int) -> tuple[list[files.Row], list[files.Row]]:
    """The rows, which depend on nothing but their lengths and the code that draws them."""
    code = Path(generator.module).read_text(encoding="utf-8") + Path(__file__).read_text(encoding="utf-8")
    key = cache.digest([source.partition(":")[0], str(low), str(high), code])
    train, valid = cache.json_value(f"generated-{key}", lambda: _draw(source, generator, low, high))
    return train, valid


def _draw(source: str, generator: Generator, low: int, high: int) -> tuple[list[files.Row], list[files.Row]]:
    """Different rows: first those of the validation text, then the others. Raises UserError if there are too few."""
    rng = random.Random(0)
    train = max(_VALID, min(_TRAIN, _TRAIN_TOKENS // (generator.tokens * high)))
    rows: dict[str, files.Row] = {}
    misses = 0
    while len(rows) < _VALID + train:
        row = generator.draw(low, high, rng)
        misses = misses + 1 if row["text"] in rows else 0
        rows.setdefault(row["text"], row)
        if misses == _PATIENCE:
            raise UserError(f"--data={source} has only {len(rows):,} different texts; ask for longer ones")
    ordered = list(rows.values())
    return ordered[_VALID:], ordered[:_VALID]
