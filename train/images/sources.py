"""Pictures with labels from folders, tables, arrays, shards, TensorFlow datasets and the built-in drawings.

A row is {"image": a Picture, "digest": a hash of its content, "label": a text}. Pictures are decoded when a batch needs
them.
"""

import functools
import glob
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from train import UserError
from train.data.sources import sources
from train.data.sources.files import Columns, Format, Row, read
from train.images import files, shards
from train.images.checking import checked
from train.images.decoding import ENDINGS, BrokenImageError, Picture
from train.images.pictures import PictureFile, PictureInArray
from train.settings.schema import Data


class PictureReader(NamedTuple):
    """What a task reads of pictures: `image`, the column of paths in tables, and `label`, that of labels or captions.

    check_label: raises ValueError for a value that is no label of the task
    several: a picture may have several labels, in a row each
    folder: a folder -> its rows; None: it has a folder for each class
    names_files: labels of tables are paths, as pictures are
    folder_files: endings of files that `folder` reads too
    file: the path of a file -> what is read of it
    endings: those of files that stand in a folder named like their label; a glob names them
    question: the column of questions about pictures, which tables alone have; None: there are none
    """

    image: str
    label: str
    check_label: Callable[[object], None]
    several: bool = False
    folder: "Callable[[Path], Parts] | None" = None
    names_files: bool = False
    folder_files: tuple[str, ...] = ()
    question: str | None = None
    file: Callable[[str], Picture] = PictureFile
    endings: tuple[str, ...] = ENDINGS

    @property
    def texts(self) -> tuple[str, ...]:
        """What tells pictures apart."""
        return ("digest",)

    @property
    def labels(self) -> tuple[str, ...]:
        """The column of labels, by which folds are balanced."""
        return ("label",)

    @property
    def parallel(self) -> bool:
        """A row is no translation."""
        return False

    @property
    def columns(self) -> Columns:
        """The columns of tables that name pictures."""
        texts = (self.image,) if self.question is None else (self.image, self.question)
        return Columns(texts, (self.label,), self.check_label)

    @property
    def formats(self) -> Mapping[str, Format]:
        """The formats of tables."""
        return self.columns.formats

    def checked(self, row: Mapping[str, object], where: str, remedy: str = "") -> Row:
        """The columns of a row of a table. Raises UserError for a bad row."""
        return self.columns.checked(row, where, remedy)

    def texts_of(self, row: Row) -> tuple[str, ...]:
        """The content of a picture: equal pictures stay together when rows are split."""
        return (row["digest"],)


class Parts(NamedTuple):
    """Rows to train on, and those to validate on where the source has both."""

    train: list[Row]
    valid: list[Row] | None = None


TABLES = (".tsv", ".csv", ".jsonl")

# Rows of the built-in pictures, for training and for validation.
Builtin = Callable[[], Parts]


def load(
    data: Data, reader: PictureReader, builtin: Builtin, log, valid_only: bool = False
) -> tuple[list[Row], list[Row]]:
    """Training and validation rows of pictures that are whole; `builtin` makes both if no source is named.

    `valid_only` leaves out training rows if --eval-data has a source of its own. Raises UserError for a bad source, and
    for a broken picture unless --data.broken=skip.
    """

    @functools.cache
    def read(source: str) -> Parts:
        if source == "builtin":
            return builtin()
        train, valid = _read(source, data, reader)
        return Parts(checked(train, source, data, log), None if valid is None else checked(valid, source, data, log))

    def parts(source: str) -> sources.Parts:
        train, valid = read(source)
        return None if valid is None else (train, valid)

    def rows_of(source: str) -> list[Row]:
        train, valid = read(source)
        return train if valid is None else valid

    return sources.divide(data, reader, parts, rows_of, valid_only)


def named_pictures(pattern: str) -> list[PictureFile]:
    """The pictures of a path, a glob or a folder, in order. Raises UserError where there are none."""
    paths = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
    if not paths:
        raise UserError(f"no file matches {pattern!r}; give the path of a picture, or a quoted glob such as '*.jpg'")
    pictures = [inner for path in paths for inner in (pictures_below(path) if path.is_dir() else [path])]
    if not pictures:
        raise UserError(f"{pattern} holds no picture ({', '.join(ENDINGS)}); name another folder")
    return [PictureFile(str(path)) for path in pictures]


def opened(picture: Picture, channels: int) -> Image.Image:
    """A picture that a flag names, decoded. Raises UserError for one that is broken."""
    try:
        return picture.open(channels)
    except BrokenImageError as error:
        raise UserError(f"{picture} {error}; leave it out of --file") from error


def _read(source: str, data: Data, reader: PictureReader) -> Parts:
    """The rows of a source, which are not looked at yet. Raises UserError for a bad one."""
    if reader.question is not None:
        _check_table(source)
    if reader.endings != ENDINGS:
        _check_files(source, reader)
    if source.startswith("tfds:"):
        from train.images import tfds

        return Parts(tfds.read(source, reader.image, reader.label, reader.check_label))
    path = Path(source)
    if path.is_dir() or (path.suffix in reader.folder_files and path.is_file()):
        return (reader.folder or _read_folder)(path)
    paths = [Path(name) for name in sorted(glob.glob(source, recursive=True))]
    if not paths:
        raise UserError(
            f"no file matches {source!r}; give a folder with a folder for each class, a table or array of pictures, a "
            "quoted glob of them, tfds:NAME, or builtin"
        )
    if len(paths) == 1 and paths[0].suffix == ".npz":
        return _arrays(paths[0], files.read_npz(paths[0]))
    rows = [row for path in paths for row in _read_file(path, data, reader)]
    if not rows:
        raise UserError(f"{source} names no picture; check the file, or choose another")
    return Parts(rows)


def _check_table(source: str):
    """Raises UserError for a source of pictures without questions."""
    if not source.removesuffix(".gz").endswith(TABLES):
        raise UserError(
            f"--data={source} has no questions about its pictures; name a table of pictures, questions and answers, "
            "such as FILE.csv"
        )


def _check_files(source: str, reader: PictureReader):
    """Raises UserError for a source that is no folder, no table, and no file that the reader knows."""
    if not Path(source).is_dir() and not source.lower().removesuffix(".gz").endswith((*reader.endings, *TABLES)):
        raise UserError(
            f"--data={source} names no videos; give a folder with a folder for each class, a table "
            f"({', '.join(TABLES)}) that names them, or a quoted glob of {', '.join(reader.endings)}"
        )


def _read_file(path: Path, data: Data, reader: PictureReader) -> list[Row]:
    """The rows of a table, of an IDX file, or of a picture, whose folder is its label."""
    if files.is_idx(path):
        return _rows(str(path), files.read_idx(path))
    if path.suffix.lower() in reader.endings:
        return [{"image": reader.file(str(path)), "label": path.absolute().parent.name}]
    if path.suffix in shards.SHARDS:
        return shards.rows(path, reader.columns, reader.several)
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if kind not in TABLES:
        raise UserError(
            f"{path} is no picture ({', '.join(ENDINGS)}), no table ({', '.join(TABLES)}), no file of many pictures "
            f"({', '.join(shards.SHARDS)}), no .npz and no IDX file such as train-images-idx3-ubyte.gz"
        )
    return _table_rows(path, read(path, data, reader.columns), reader)


def _table_rows(table: Path, rows: Sequence[Row], reader: PictureReader) -> list[Row]:
    """Rows with paths as pictures; paths begin at the folder of the table, or here. Raises UserError for two labels of
    a picture, or of a question about it."""
    labels: dict[tuple[str, ...], object] = {}
    texts = reader.columns.texts
    different = dict.fromkeys((tuple(row[name] for name in texts), row[reader.label]) for row in rows)
    for key, label in different:
        if labels.setdefault(key, label) != label and not reader.several:
            raise UserError(
                f"{table} names {', '.join(key)} with the label {labels[key]!r} and with {label!r}; leave one of them "
                "out"
            )
    return [
        {
            "image": reader.file(str(_path_in(table, path))),
            "label": str(_path_in(table, label)) if reader.names_files else label,
            **({"question": question[0]} if question else {}),
        }
        for (path, *question), label in different
    ]


def _path_in(table: Path, path: str) -> Path:
    """The path of a picture that a table names."""
    in_folder = table.parent / path
    return in_folder if in_folder.exists() or not Path(path).exists() else Path(path)


def _read_folder(folder: Path) -> Parts:
    """A folder with a folder for each class, or with IDX files. Raises UserError for another one."""
    idx = [path for path in sorted(folder.iterdir()) if files.is_idx(path)]
    if idx:
        return _read_idx_folder(folder, idx)
    classes = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    splits = [path for path in classes if path.name in ("train", "val", "valid", "validation", "test")]
    if splits and splits == classes:
        train, *rest = sorted(splits, key=lambda path: path.name != "train")
        valid = f" --eval-data={rest[0]}" if rest else ""
        raise UserError(f"{folder} has a folder for each split; name them: --data={train}{valid}")
    rows = [
        {"image": PictureFile(str(path)), "label": directory.name}
        for directory in classes
        for path in pictures_below(directory)
    ]
    if not rows:
        raise UserError(
            f"{folder} has no folder with pictures ({', '.join(ENDINGS)}); it must have a folder for each class"
        )
    return Parts(rows)


def pictures_below(directory: Path) -> Iterator[Path]:
    """The files of a folder and of those in it whose names end as those of pictures do, in order."""
    yield from (path for path in sorted(directory.rglob("*")) if path.suffix.lower() in ENDINGS and path.is_file())


def _read_idx_folder(folder: Path, paths: Sequence[Path]) -> Parts:
    """The training pictures of MNIST's folder, and its test pictures for validation where it has them."""
    train = [path for path in paths if path.name.startswith("train")]
    valid = [path for path in paths if path not in train]
    if len(train) != 1 or len(valid) > 1:
        raise UserError(f"{folder} has {', '.join(path.name for path in paths)}; name the file to train on with --data")
    rows = _rows(str(train[0]), files.read_idx(train[0]))
    return Parts(rows, _rows(str(valid[0]), files.read_idx(valid[0])) if valid else None)


def _arrays(path: Path, parts: tuple[files.Labelled, files.Labelled | None]) -> Parts:
    train, valid = parts
    return Parts(_rows(str(path), train), None if valid is None else _rows(f"{path}, validation", valid))


def _rows(name: str, pictures: files.Labelled) -> list[Row]:
    """A row for each picture of an array."""
    make = partial(PictureInArray, name, pictures.images)
    return [{"image": make(index), "label": str(label)} for index, label in enumerate(pictures.labels.tolist())]
