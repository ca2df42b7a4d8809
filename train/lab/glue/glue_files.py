"""The tables of GLUE as rows of `text`, `pair`, `label` and `idx`.

Their odd sides: CoLA has four columns and no header, but its test file has one. Quotes are text everywhere (QQP).
MRPC begins with a byte order mark, and may be the files of Microsoft Research, whose validation set is a list of ids.
A few lines of QQP are cut. Only tabs part cells, and only line feeds part lines.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from train import UserError
from train.data.sources import files
from train.lab.glue.glue_rows import GlueRow, texts_of
from train.lab.glue.suites import GluePart, GlueTask

Log = Callable[[str], None]

# The cells of a line, by column.
Cells = Mapping[str, str]

# Columns that hold the index of a row of a test file.
_INDEX = ("index", "id")

# The columns of the diagnostic set with labels, which its authors publish apart.
_DIAGNOSTIC = {"sentence1": "Premise", "sentence2": "Hypothesis", "gold_label": "Label"}


def train_rows(folder: Path, task: GlueTask, log: Log) -> list[GlueRow]:
    """The training set. Raises UserError for a missing file, a missing column or an unknown label."""
    if task.name == "MRPC" and not (folder / task.train).exists():
        return _msr_rows(folder, task, dev=False)
    return _labelled(folder / task.train, task, log)


def dev_rows(folder: Path, task: GlueTask, part: GluePart, log: Log) -> list[GlueRow]:
    """A validation set; [] where a part that does not count has no labels. Raises UserError as `train_rows`."""
    if task.name == "MRPC" and not (folder / task.train).exists():
        return _msr_rows(folder, task, dev=True)
    paths = [path for name in part.dev.split("|") if (path := folder / name).exists()]
    if not part.counts and not paths:
        return []
    return _labelled(paths[0] if paths else folder / part.dev, task, log)


def test_rows(folder: Path, task: GlueTask, part: GluePart) -> list[GlueRow]:
    """A test set: rows without labels, `idx` as the file says. Raises UserError where a row is cut or has no index."""
    paths = [path for name in part.test.split("|") if (path := folder / name).exists()]
    path = paths[0] if paths else folder / part.test.split("|")[0]
    is_msr = task.name == "MRPC" and not paths
    path = folder / "MRPC" / "msr_paraphrase_test.txt" if is_msr else path
    rows = []
    for count, (where, cells, is_whole) in enumerate(_table(path, ())):
        if not is_whole:
            raise UserError(f"{where} has another number of columns than the first line; the server wants every row")
        rows.append(_texts(cells, task.texts, where) | {"idx": count if is_msr else _index(cells, where)})
    return rows


def _index(cells: Cells, where: str) -> int:
    name = next((name for name in _INDEX if name in cells), None)
    if name is None or not str(cells[name]).isdecimal():
        raise UserError(f"{where} has no whole number in a column 'index' (it has {', '.join(cells)}); repair it")
    return int(cells[name])


def _labelled(path: Path, task: GlueTask, log: Log) -> list[GlueRow]:
    """The rows of a file with labels, without cut lines and rows that annotators could not agree on ("-")."""
    rows: list[GlueRow] = []
    cut = without_label = 0
    for where, cells, is_whole in _table(path, task.headless):
        if not is_whole:
            cut += 1
            continue
        if "Premise" in cells and "sentence1" not in cells:
            cells = {name: cells[column] for name, column in _DIAGNOSTIC.items() if column in cells}
        if cells.get(task.label) == "-":
            without_label += 1
            continue
        rows.append(_texts(cells, task.texts, where) | {"label": _label(cells, task, where), "idx": len(rows)})
    if not rows or cut > max(10, len(rows) // 100):
        raise UserError(f"{path} holds {len(rows):,} whole rows and {cut:,} cut ones; fetch the file again")
    for count, reason in ((cut, "lines with missing or further columns"), (without_label, "rows without a label")):
        if count:
            log(f"{path}: left out {count:,} {reason}")
    return rows


def _table(path: Path, names: Sequence[str]) -> Iterator[tuple[str, Cells, bool]]:
    """Where a row stands, its cells by column, and whether they are as many as in the first line."""
    lines = files.read_lines(path, lone_returns=False)  # QQP has some inside its questions
    first_line = 1 if names else 2
    if not names:
        names, lines = lines[0].split("\t"), lines[1:]
    for line_number, line in enumerate(lines, start=first_line):
        cells = line.split("\t")
        if line.strip():
            row = dict(zip(names, cells, strict=False))
            yield f"{path}, line {line_number}", row, len(cells) == len(names)


def _texts(cells: Cells, columns: Sequence[str], where: str) -> GlueRow:
    """The text, or the texts of a pair."""
    for column in columns:
        if column not in cells:
            raise UserError(f"{where} has no column {column!r} (it has {', '.join(cells)}); fetch the file again")
    return texts_of(cells, columns)


def _label(cells: Cells, task: GlueTask, where: str) -> str | float:
    """The class, or the value."""
    label = cells.get(task.label)
    if label is None:
        raise UserError(f"{where} has no column {task.label!r} (it has {', '.join(cells)}); fetch the file again")
    if task.labels and label not in task.labels:
        raise UserError(f"{where} has the label {label!r}; {task.name} has {', '.join(task.labels)}; repair the line")
    try:
        return label if task.labels else float(label)
    except ValueError as error:
        raise UserError(f"{where} has the score {label!r}, which is not a number; repair the line") from error


def _msr_rows(folder: Path, task: GlueTask, dev: bool) -> list[GlueRow]:
    """MRPC from msr_paraphrase_train.txt: the pairs of ids in dev_ids.tsv are for validation, the rest for training."""
    source, ids_file = folder / "MRPC" / "msr_paraphrase_train.txt", folder / "MRPC" / "dev_ids.tsv"
    if not source.exists():
        raise UserError(f"{folder / task.train} does not exist, nor {source}; fetch one of them")
    if not ids_file.exists():
        raise UserError(f"{ids_file} does not exist; it says which pairs of {source.name} GLUE validates on")
    ids = {line.strip() for line in files.read_lines(ids_file)}
    rows: list[GlueRow] = []
    for where, cells, is_whole in _table(source, ()):
        if not is_whole:
            raise UserError(f"{where} has another number of columns than the first line; fetch the file again")
        if (f"{cells.get('#1 ID')}\t{cells.get('#2 ID')}" in ids) == dev:
            label = _label(cells, task, where)
            rows.append(_texts(cells, task.texts, where) | {"label": label, "idx": len(rows)})
    if not rows:
        raise UserError(f"{ids_file} has {'none' if dev else 'all'} of the pairs of {source}; fetch both again")
    return rows
