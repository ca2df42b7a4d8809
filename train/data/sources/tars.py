"""Rows of tars of samples, as WebDataset names them: files of a sample stand together and differ in their endings."""

import tarfile
from collections.abc import Callable, Iterator, Sequence
from tarfile import EOFHeaderError, HeaderError, ReadError  # type: ignore[attr-defined]
from typing import Literal, Self

from tfm.options import json_text
from train import UserError
from train.data.sources.files import Reader, Row
from train.data.sources.opening import opened

# What is made of a file of a sample: the tar, the file, and its ending -> any value.
Member = Callable[[tarfile.TarFile, tarfile.TarInfo, str], object]


def rows(path: str, columns: Reader) -> Iterator[Row]:
    """The samples of a tar: a column is the ending of a file, and of JSON a dot leads into it (json.caption).

    Raises UserError for a tar that is damaged, and for samples without a column.
    """
    names = (*columns.texts, *columns.labels)
    for key, files in samples(path, text_of(names, path)):
        yield columns.checked(files | inner(files, names, f"{path}, {key}"), f"{path}, {key}")


def samples(path: str, value: Member, is_stream: bool = True) -> Iterator[tuple[str, Row]]:
    """The name of every sample, and what `value` makes of its files, by their endings. A file that is no stream is read
    where `value` reads, and nowhere else. Raises UserError for a tar that is damaged."""
    key, files = "", Row()
    try:
        mode: Literal["r|", "r:"] = "r|" if is_stream else "r:"
        with opened(path) as file, tarfile.open(fileobj=file, mode=mode, tarinfo=_Header) as archive:
            for member in archive:
                archive.members = []  # type: ignore[attr-defined]  # else it remembers all
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
                files[ending] = value(archive, member, ending)
    except tarfile.TarError as error:
        raise UserError(f"{path} is damaged, or no tar ({error}); make it again") from error
    if key:
        yield key, files


class _Header(tarfile.TarInfo):
    """The header of a file. Where one is damaged, or the tar ends without the zeros that end it, `tarfile` itself would
    take that for its end."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        """The next header. Raises ReadError for damage."""
        try:
            return super().fromtarfile(tarfile)
        except EOFHeaderError:
            raise
        except HeaderError as error:
            raise ReadError(str(error)) from error


def text_of(names: Sequence[str], path: str) -> Member:
    """The text of the files that columns name; "" of others, which are not read."""

    def text(archive: tarfile.TarFile, member: tarfile.TarInfo, ending: str) -> str:
        is_read = any(name == ending or name.startswith(f"{ending}.") for name in names)
        return _text(archive, member, path) if is_read else ""

    return text


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> str:
    content = archive.extractfile(member)
    data = content.read() if content else b""
    try:
        return json_text.decode_text(data, f"{path}, {member.name}")
    except ValueError as error:
        raise UserError(str(error)) from error


def inner(files: Row, names: Sequence[str], where: str) -> Row:
    """The members of JSON files that columns name."""
    members: Row = {}
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
            members[name] = value
    return members
