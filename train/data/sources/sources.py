"""Examples from built-in data, files or TensorFlow datasets, and the split for validation.

An example is a row of columns, a dictionary: {"text": ...}, or {"sentence1": ..., "sentence2": ..., "label": ...}.
"""

import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from train import UserError
from train.data.sources import files, generated, opening, text
from train.data.sources.files import Reader, Row
from train.data.sources.hold_out import train_valid_split
from train.data.sources.row_files import ROW_FILES
from train.settings.schema import Data

Builtin = Callable[[], tuple[list[Row], list[Row]]]

# Writes a line of the log.
LogLine = Callable[[str], None]


def to_stderr(line: str):
    """A line of the log where there is none."""
    print(line, file=sys.stderr)


# Training and validation rows of a source that has both; None of another one.
Parts = tuple[list[Row], list[Row]] | None


def load(
    data: Data, columns: Reader, builtin: Builtin, log: LogLine = to_stderr, valid_only: bool = False
) -> tuple[list[Row], list[Row]]:
    """Training and validation rows; `builtin` makes both if no source is named.

    `valid_only` leaves out training rows if --eval-data has a source of its own. Says how many rows have no text, and
    are left out. Raises UserError for a bad source, and for more folds than there are rows.
    """

    def parts(source: str) -> Parts:
        return _own_rows(source, columns, builtin)

    def rows_of(source: str) -> list[Row]:
        return read(source, data, columns, builtin, log)

    return divide(data, columns, parts, rows_of, valid_only)


def divide(
    data: Data,
    columns: Reader,
    parts: Callable[[str], Parts],
    rows_of: Callable[[str], list[Row]],
    valid_only: bool = False,
) -> tuple[list[Row], list[Row]]:
    """Training and validation rows of the sources of a run.

    `parts` are those of a source that has both, else None; `rows_of` are all rows of a source to train or to validate
    on. Raises UserError for --data.folds beside --eval-data, and for more folds than there are rows.
    """
    if valid_only and data.eval:
        return [], rows_of(data.eval)
    if data.folds and data.eval:
        raise UserError(
            f"--data.folds={data.folds} holds out rows of --data, and --eval-data={data.eval} names others; "
            "leave one of them out"
        )
    own = parts(data.source)
    if data.folds:
        return fold_split(own[0] if own else rows_of(data.source), columns, data.folds, data.fold or 0)
    if own:
        train, valid = own
        return train, rows_of(data.eval) if data.eval else valid
    rows = rows_of(data.source)
    return (rows, rows_of(data.eval)) if data.eval else train_valid_split(rows, columns)


def read(source: str, data: Data, columns: Reader, builtin: Builtin, log: LogLine = to_stderr) -> list[Row]:
    """The rows of a source; blank rows only of sentence pairs, which are counted; says how many others there were.

    A file whose name has the signs of a glob is that file. Raises UserError for a bad source.
    """
    if own := _own_rows(source, columns, builtin):
        return own[1]
    if "," in source and columns.parallel:
        rows = files.read_parallel(source, columns)
    elif source.startswith("tfds:"):
        from train.data.sources import tfds

        rows = [columns.checked(row, source) for row in tfds.read(source)]
    else:
        if opening.is_url(source):
            raise UserError(f"{source} is a URL, which train.prepare alone reads; make a store of it, and name that")
        source_files = opening.files_of(source)
        text.check_total(source, [file.size for file in source_files])
        rows = [row for file in source_files for row in _rows_of(Path(file.path), data, columns)]
    filled = [row for row in rows if any(map(str.strip, columns.texts_of(row)))]
    if not filled:
        raise UserError(f"{source} holds no text; check the file, or choose another")
    if columns.parallel:
        return rows
    if blank := len(rows) - len(filled):
        log(f"{blank:,} of {len(rows):,} rows of {source} have no text, and are left out")
    return filled


def _rows_of(path: Path, data: Data, columns: Reader) -> Iterable[Row]:
    """The rows of a file."""
    read_rows = ROW_FILES.get(opening.ending(str(path)))
    if read_rows and ".jsonl" in columns.formats and not data.format:
        return read_rows(str(path), columns)
    return files.read(path, data, columns)


def _own_rows(source: str, columns: Reader, builtin: Builtin) -> tuple[list[Row], list[Row]] | None:
    """Training and validation rows of the task itself, or of a generator; None of other sources."""
    return builtin() if source == "builtin" else generated.rows_of(source, columns)


def fold_split(rows: list[Row], columns: Reader, folds: int, fold: int) -> tuple[list[Row], list[Row]]:
    """The rows outside a fold of several, and those in it, for cross-validation: every row is in one fold.

    Folds are of equal size, up to one row, have the same share of every label, and depend on nothing but the rows. Rows
    of equal texts are in the same fold. Raises UserError for fewer different texts than folds.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(columns.texts_of(row), []).append(place)
    if len(groups) < folds:
        raise UserError(
            f"--data.folds={folds} needs as many different rows, and there are {len(groups)}; ask for fewer"
        )
    members = list(groups.values())
    random.Random(0).shuffle(members)
    members.sort(key=lambda places: str([rows[places[0]].get(name) for name in columns.labels]))
    held_out = {place for places in members[fold::folds] for place in places}
    train = [row for place, row in enumerate(rows) if place not in held_out]
    return train, [rows[place] for place in sorted(held_out)]
