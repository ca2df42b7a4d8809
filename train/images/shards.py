"""Pictures in files of many: tars of samples, and columns of bytes. They stay on the disk until a batch needs them."""

import hashlib
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from tfm.options import json_text
from train import UserError
from train.data.sources import columnar, tars
from train.data.sources.files import Columns, Row
from train.files import cache
from train.images.decoding import ENDINGS, BrokenImageError, decode
from train.settings.gate import user_errors

# The ending of files of columns, and of all files of many pictures.
_COLUMNAR = (".parquet", ".arrow")
SHARDS = (".tar", *_COLUMNAR)

# Pictures of a file of columns that are in memory together.
_TOGETHER = 16

# The column of the name of a sample of a tar, as WebDataset calls it.
_KEY = "__key__"


class PictureInShard(NamedTuple):
    """A picture that is `size` bytes of a file, from a byte on."""

    name: str
    path: str
    start: int
    size: int

    def __str__(self):
        return self.name

    def open(self, channels: int) -> Image.Image:
        """The picture, decoded."""
        return decode(self._content(), channels)

    def digest(self) -> str:
        """A hash of its bytes."""
        return hashlib.sha256(self._content()).hexdigest()[:32]

    def stamp(self) -> str | None:
        """The path, size and time of the file, and its place there."""
        try:
            status = os.stat(self.path)
        except OSError:
            return f"{self.path} absent"
        return f"{self.path} {status.st_size} {status.st_mtime_ns} {self.start} {self.size}"

    def _content(self) -> bytes:
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(self.start)
                return file.read(self.size)
        except FileNotFoundError as error:
            raise BrokenImageError(f"is in {self.path}, which does not exist") from error


def rows(path: Path, columns: Columns, several: bool) -> list[Row]:
    """The pictures of a file with their labels; with `several`, a list of labels is a row each. Raises UserError for a
    file that is damaged, or lacks a column."""
    read = _of_tar if path.suffix == ".tar" else _of_columns
    return [
        {"image": picture, "label": label}
        for picture, value in read(path, columns)
        for label in (value if several and isinstance(value, list) else [value])
        if columns.checked({columns.texts[0]: "", columns.labels[0]: label}, str(picture))
    ]


def _of_tar(path: Path, columns: Columns) -> Iterator[tuple[PictureInShard, object]]:
    """The pictures of a tar and their labels; the column of a file is its ending, and a dot leads into JSON."""
    (image,), (label,) = columns.texts, columns.labels
    place = str(path)  # one string for all pictures
    text = tars.text_of([label], place)

    def value(archive: tarfile.TarFile, member: tarfile.TarInfo, ending: str) -> object:
        if f".{ending}".endswith(ENDINGS):
            return PictureInShard(f"{place}, {member.name}", place, member.offset_data, member.size)
        return text(archive, member, ending)

    for key, files in tars.samples(place, value, is_stream=False):
        where = f"{path}, {key}"
        pictures = {ending: file for ending, file in files.items() if isinstance(file, PictureInShard)}
        chosen = pictures.get(image) or (next(iter(pictures.values())) if len(pictures) == 1 else None)
        if chosen is None:
            endings = ", ".join(pictures) or f"none that ends in {', '.join(ENDINGS)}"
            raise UserError(f"{where} must have one picture, and it has {endings}; name one with --data.field=ENDING")
        files |= {_KEY: key} | tars.inner(files, [label], where)
        if label not in files:
            raise UserError(
                f"{where} has no file {label!r} (it has {', '.join(files)}); name it with --data.label=NAME"
            )
        yield chosen, _plain(files[label])


def _of_columns(path: Path, columns: Columns) -> Iterator[tuple[PictureInShard, object]]:
    """The pictures of a file of columns and their labels. Its rows cannot be read one by one: the bytes of all pictures
    are copied into a file of the cache, once."""
    (image,), (label,) = columns.texts, columns.labels
    status = path.stat()
    stamp = [str(path.absolute()), str(status.st_size), str(status.st_mtime_ns), image, label]
    copy = cache.cache_dir() / f"shard-{cache.digest(stamp)}.bin"
    names = _class_names(path, label) if path.suffix == ".parquet" else []

    def make() -> list[tuple[int, int, object]]:
        entries, place = [], 0
        with cache.writer(copy) as append:
            for count, row in enumerate(columnar.rows(str(path), _Cells((image,), (label,)), _TOGETHER), start=1):
                content = _bytes_of(row[image], f"{path}, row {count}, column {image!r}")
                append(content)
                entries.append((place, len(content), _plain(row[label], names)))
                place += len(content)
        return entries

    entries: Iterable[tuple[int, int, object]] = cache.json_value(copy.stem, make, companions=[copy])
    place = str(copy)  # one string for all pictures
    for count, (start, size, value) in enumerate(entries, start=1):
        yield PictureInShard(f"{path}, row {count}", place, start, size), value


class _Cells(Columns):
    """Columns of any values."""

    def checked(self, row: Mapping[str, object], where: str, remedy: str = "") -> Row:
        """The row. Raises UserError where a column is absent or empty."""
        for flag, names in (("field", self.texts), ("label", self.labels)):
            for name in names:
                if row.get(name) is None:
                    present = ", ".join(row)
                    raise UserError(
                        f"{where} has nothing in a column {name!r} (it has {present}); name it with --data.{flag}=NAME"
                    )
        return dict(row)


def _bytes_of(cell: object, where: str) -> bytes:
    """The bytes of a picture: those of the cell, or of its member `bytes`, as `datasets` writes it."""
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    if not isinstance(content, bytes):
        raise UserError(f"{where} holds no bytes of a picture; name another column with --data.field=NAME")
    return content


def _plain(value: object, names: list[str] | None = None) -> object:
    """A label as a text, without spaces around it; with `names` a number is a class. Lists stay lists."""
    if isinstance(value, list):
        return [_plain(member, names) for member in value]
    if isinstance(value, int) and names and 0 <= value < len(names):
        return names[value]
    return value.strip() if isinstance(value, str) else str(value)


def _class_names(path: Path, label: str) -> list[str]:
    """The names of classes that `datasets` keeps in the schema of a parquet; none where it keeps none."""
    import pyarrow
    from pyarrow import parquet

    try:
        metadata = parquet.read_schema(path).metadata or {}
    except pyarrow.ArrowException as error:
        fault = str(error).splitlines()[0]
        raise UserError(f"{path} is damaged, or of another format ({fault}); make it again") from error
    with user_errors(str(path)):
        info = json_text.parse((metadata.get(b"huggingface") or b"{}").decode(), str(path))
    for name in ("info", "features", label, "names"):
        info = info.get(name) if isinstance(info, dict) else None
    return [str(name) for name in info] if isinstance(info, list) else []
