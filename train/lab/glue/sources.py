"""Where a suite comes from: a folder of the official files, or TensorFlow data sets."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from train import UserError
from train.data.sources.files import Row
from train.lab.glue import glue_files, superglue_files
from train.lab.glue.glue_rows import GlueRow, texts_of
from train.lab.glue.suites import GluePart, GlueTask

Log = Callable[[str], None]


class Source(Protocol):
    """The rows of the tasks of a suite: `text`, for pairs `pair`, `idx`, and `label` if there is one."""

    def has(self, task: GlueTask) -> bool:
        """Whether the task is there."""

    def train(self, task: GlueTask) -> list[GlueRow]:
        """The training set. Raises UserError for bad files."""

    def dev(self, task: GlueTask, part: GluePart) -> list[GlueRow]:
        """The validation set of a part; [] where a diagnostic set has no labels. Raises UserError for bad files."""

    def has_test(self, part: GluePart) -> bool:
        """Whether the test set of a part is there."""

    def test(self, task: GlueTask, part: GluePart) -> list[GlueRow]:
        """The test set of a part, without labels. Raises UserError for bad files."""


def open_source(data: str, suite: str, log: Log) -> Source:
    """The source that `--data` names. Raises UserError where there is no such folder."""
    if data == "tfds":
        return Tfds(suite)
    if not Path(data).is_dir():
        raise UserError(f"--data={data} is not a folder; name the one that holds the folders of the tasks, or tfds")
    return GlueFolder(Path(data), log) if suite == "glue" else SuperGlueFolder(Path(data))


class GlueFolder:
    """A folder with CoLA/train.tsv and so on."""

    def __init__(self, path: Path, log: Log):
        self.path, self.log = path, log

    def has(self, task: GlueTask) -> bool:
        """Whether the folder of the task is there."""
        return (self.path / task.train).parent.is_dir()

    def train(self, task: GlueTask) -> list[GlueRow]:
        """The training set."""
        return glue_files.train_rows(self.path, task, self.log)

    def dev(self, task: GlueTask, part: GluePart) -> list[GlueRow]:
        """The validation set of a part."""
        return glue_files.dev_rows(self.path, task, part, self.log)

    def has_test(self, part: GluePart) -> bool:
        """Whether one of the files is there."""
        return any((self.path / name).exists() for name in part.test.split("|"))

    def test(self, task: GlueTask, part: GluePart) -> list[GlueRow]:
        """The test set of a part."""
        return glue_files.test_rows(self.path, task, part)


class SuperGlueFolder:
    """A folder with BoolQ/train.jsonl and so on."""

    def __init__(self, path: Path):
        self.path = path

    def has(self, task: GlueTask) -> bool:
        """Whether the folder of the task is there."""
        return (self.path / task.train).parent.is_dir()

    def train(self, task: GlueTask) -> list[GlueRow]:
        """The training set."""
        return superglue_files.read(self.path / task.train, task, labelled=True)

    def dev(self, task: GlueTask, part: GluePart) -> list[GlueRow]:
        """The validation set of a part; the diagnostic sets have one file, with labels or without."""
        path = self.path / part.dev
        if not part.counts and not (path.exists() and '"label"' in path.read_text("utf-8").partition("\n")[0]):
            return []
        return superglue_files.read(path, task, labelled=True)

    def has_test(self, part: GluePart) -> bool:
        """Whether the file is there."""
        return (self.path / part.test).exists()

    def test(self, task: GlueTask, part: GluePart) -> list[GlueRow]:
        """The test set of a part."""
        return superglue_files.read(self.path / part.test, task, labelled=False)


class Tfds:
    """The sets glue/* or super_glue/* of TensorFlow data sets; every task counts as being there."""

    def __init__(self, suite: str):
        self.suite = suite

    def has(self, task: GlueTask) -> bool:
        """Always: what is not stored is fetched."""
        return True

    def train(self, task: GlueTask) -> list[GlueRow]:
        """The training set."""
        return self._rows(task, f"tfds:{task.parts[0].tfds}:train", labelled=True)

    def dev(self, task: GlueTask, part: GluePart) -> list[GlueRow]:
        """The validation set of a part; [] for a diagnostic set whose labels are hidden."""
        if not part.splits[0]:
            return []
        return self._rows(task, f"tfds:{part.tfds}:{part.splits[0]}", labelled=True, may_hide=not part.counts)

    def has_test(self, part: GluePart) -> bool:
        """Always: what is not stored is fetched."""
        return True

    def test(self, task: GlueTask, part: GluePart) -> list[GlueRow]:
        """The test set of a part."""
        return self._rows(task, f"tfds:{part.tfds}:{part.splits[1]}", labelled=False)

    def _rows(self, task: GlueTask, source: str, labelled: bool, may_hide: bool = False) -> list[GlueRow]:
        from train.data.sources import tfds

        rows = sorted(tfds.read(source), key=_order)
        if may_hide and any(row.get("label") is None for row in rows):
            return []
        if self.suite == "superglue":
            return superglue_files.convert(rows, task, labelled, source)
        return [_glue_row(row, task, labelled, source) for row in rows]


def _order(row: Row) -> list[int]:
    """The place of a row in the official file: sets are stored in another order."""
    idx = row.get("idx", 0)
    return list(idx.values()) if isinstance(idx, Mapping) else [idx]


def _glue_row(row: Row, task: GlueTask, labelled: bool, source: str) -> GlueRow:
    """A row of GLUE, with the label as the official files write it."""
    columns = task.tfds_texts or task.texts
    if missing := [name for name in (*columns, "idx", "label") if name not in row]:
        raise UserError(f"{source} has no column {missing[0]!r} (it has {', '.join(row)}); prepare it again")
    texts = texts_of(row, columns)
    if not labelled:
        return texts | {"idx": row["idx"]}
    if not task.labels:
        return texts | {"idx": row["idx"], "label": float(row["label"])}
    names = task.tfds_labels or task.labels
    if row["label"] not in names:
        raise UserError(f"{source} has the label {row['label']!r}; {task.name} has {', '.join(names)} there")
    return texts | {"idx": row["idx"], "label": task.labels[names.index(row["label"])]}
