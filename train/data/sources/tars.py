"""Rows of tars of samples, as WebDataset names them: files of a sample stand together and differ in their endings."""

import tarfile
from collections.abc import Iterator

from tfm.options import json_text
from train import UserError
from train.data.sources.files import Reader, Row
from train.data.sources.opening import opened


def rows(path: str, columns: Reader) -> Iterator[Row]:
    """The samples of a tar: a column is the ending of a file, and of JSON a dot leads into it (json.caption).

    Raises UserError for a tar that is damaged, and for samples without a column.
    """
    names = (*columns.texts, *columns.labels)
    try:
        for key, files in _samples(path, names):
            yield columns.checked(files | _inner(files, names, f"{path}, {key}"), f"{path}, {key}")
    except tarfile.TarError as error:
        raise UserError(f"{path} is damaged, or no tar ({error}); make it again") from error


def _samples(path: str, names: tuple[str, ...]) -> Iterator[tuple[str, Row]]:
    """The files of every sample that a task reads, as text, by their endings; others are named, and not read."""
    key, files = "", Row()
    with opened(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            folder, slash, name = member.name.rpartition("/")
            stem, _, ending = name.partition(".")
            if not member.isfile() or not stem:
                continue
            if key and key != f"{folder}{slash}{stem}":
                yield key, files
                files = {}
            key = f"{folder}{slash}{stem}"
            if ending in files:
                raise UserError(f"{path} has two files {member.name}; make it again")
            is_read = any(name == ending or name.startswith(f"{ending}.") for name in names)
            files[ending] = _text(archive, member, path) if is_read else ""
    if key:
        yield key, files


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> str:
    content = archive.extractfile(member)
    data = content.read() if content else b""
    try:
        return json_text.decode_text(data, f"{path}, {member.name}")
    except ValueError as error:
        raise UserError(str(error)) from error


def _inner(files: Row, names: tuple[str, ...], where: str) -> Row:
    """The members of JSON files that columns name."""
    inner: Row = {}
    for name in names:
        ending, _, member = name.partition(".")
        if name in files or ending not in files or not member:
            continue
        try:
            value = json_text.parse(files[ending], f"{where}.{ending}")
        except ValueError as error:
            raise UserError(str(error)) from error
        for part in member.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            inner[name] = value
    return inner
