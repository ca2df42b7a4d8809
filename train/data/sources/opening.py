"""Files as streams: local ones and those that fsspec opens, decompressed, as lines and as chunks of text."""

import bz2
import contextlib
import glob
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from tfm.options import json_text
from train import UserError
from train.data.encoding import CHUNK
from train.files.buckets import limit_silence
from train.settings.gate import user_errors


def _zstd(file: IO[bytes]) -> IO[bytes]:
    import pyarrow

    return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd"), 1 << 20)  # type: ignore[arg-type,type-var]


# The ending of a compressed file -> how it is read; a file may have several members, one after the other.
DECOMPRESSED: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _zstd,
}

# The byte order mark.
MARK = "\ufeff"

# What is raised of a compressed file that is damaged; some errors of the system have no number.
DAMAGES = (EOFError, zlib.error, lzma.LZMAError, OSError)


class SourceFile(NamedTuple):
    """A file of a source: its path or URL, and its size in bytes."""

    path: str
    size: int


def is_url(path: str) -> bool:
    """Whether fsspec opens a path, such as gs://bucket/file."""
    return "://" in path


def files_of(source: str) -> list[SourceFile]:
    """The files that a path, a glob or a URL with signs of a glob names, sorted by name. A folder of `datasets` is its
    files. Raises UserError where there are none."""
    if is_url(source):
        system, path = _file_system(source)
        with sentences(source):
            names = sorted(system.glob(path)) if glob.has_magic(path) else [path]
            files = [SourceFile(system.unstrip_protocol(name), int(system.size(name) or 0)) for name in names]
    else:
        paths = [source] if os.path.exists(source) else sorted(glob.glob(source, recursive=True))
        paths = [path for name in paths for path in _arrow_files(Path(name))]
        files = [SourceFile(path, os.stat(path).st_size) for path in paths]
    if not files:
        raise UserError(f"no file matches {source!r}; give a path or a quoted glob of files, tfds:NAME, or builtin")
    return files


def ending(path: str, kind: str | None = None) -> str:
    """The ending of files in the format of this one, without that of its compression: `kind`, or its own. One of
    several shards may have its place behind it: .tfrecord-00000-of-00010."""
    if kind:
        return ".txt" if kind == "text" else f".{kind}"
    name = Path(re.sub(r"-\d+-of-\d+$", "", path))
    return name.with_suffix("").suffix if name.suffix in DECOMPRESSED else name.suffix


@contextlib.contextmanager
def opened(path: str, start: int = 0) -> Iterator[IO[bytes]]:
    """The content of a file from a byte on, decompressed. Raises UserError where it is absent, damaged or forbidden."""
    compression = Path(path).suffix if Path(path).suffix in DECOMPRESSED else ""
    with contextlib.ExitStack() as stack:
        stack.enter_context(sentences(path, compression))
        if is_url(path):
            system, name = _file_system(path)
            file = stack.enter_context(system.open(name, "rb"))
        else:
            file = stack.enter_context(open(path, "rb", buffering=1 << 20))
        if start:
            file.seek(start)
        yield stack.enter_context(DECOMPRESSED[compression](file)) if compression else file


def lines(path: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1 on, without their ends; of those that begin at the bytes `start` to `end` - 1.

    A line ends with a line feed, a carriage return, or both. Files that were joined have byte order marks before lines.
    """
    with opened(path, max(0, start - 1)) as file:
        place = start + len(file.readline()) - 1 if start else 0
        line_number = 0
        while (end is None or place < end) and (raw := file.readline()):
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                text = "\0"
            if "\0" in text:
                with user_errors():
                    json_text.decode_text(raw, f"{path}, byte {place}" if start else f"{path}, line {line_number + 1}")
            text = text.removesuffix("\n")
            for line in text.removesuffix("\r").split("\r") if "\r" in text else (text,):
                line_number += 1
                yield line_number, line.removeprefix(MARK)
            place += len(raw)


def without_marks(text: str) -> str:
    """A text without byte order marks at the beginning of lines, where files were joined."""
    return text.replace(f"\n{MARK}", "\n")


def chunks_of(path: str) -> Iterator[str]:
    """The text of a file in chunks, in which a line feed ends every line."""
    with opened(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig") as text:
        place, ends_line = 0, False
        try:
            while chunk := text.read(CHUNK):
                if "\0" in chunk:
                    raise UserError(f"{path} is a binary file: there is a NUL in it; give a text file")
                place += len(chunk)
                yield without_marks(chunk.removeprefix(MARK) if ends_line else chunk)
                ends_line = chunk.endswith("\n")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path} is not UTF-8 (behind character {place}); convert it, for example with iconv -t UTF-8"
            ) from error


def _file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it. Raises UserError where its package is not installed."""
    import fsspec

    limit_silence()
    try:
        return fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UserError(f"{url} cannot be read: {error}; pip install 'tfm[prepare]'") from error


def _arrow_files(path: Path) -> list[str]:
    """The files of a folder that `datasets` saved, in its order; any other path is itself."""
    state = path / "state.json"
    if not state.is_file():
        return [str(path)]
    with user_errors():
        entries = json_text.read_object(state).get("_data_files") or ()
    return [str(path / entry["filename"]) for entry in entries]


# The packages whose errors are those of a bucket: its name, rights, quota, or the network.
_OF_BUCKETS = {"gcsfs", "s3fs", "botocore", "aiobotocore", "aiohttp", "google", "requests", "adlfs", "azure"}


@contextlib.contextmanager
def sentences(path: str, compression: str = "") -> Iterator[None]:
    """Errors of a file, or of the bucket of a URL, as sentences."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{path} does not exist; give the path of a file") from error
    except PermissionError as error:
        account = "give your account the right to read the bucket" if is_url(path) else "change its permissions"
        raise UserError(f"{path} may not be read; {account}") from error
    except TimeoutError as error:
        raise UserError(f"{path} cannot be read: nothing answers; check the network") from error
    except Exception as error:
        own = type(error).__module__.partition(".")[0] in _OF_BUCKETS
        if is_url(path) and (own or (type(error) is OSError and error.errno is None)):
            fault = (str(error).splitlines() or [type(error).__name__])[0][:200]
            remedy = "check the name of the bucket, the rights of your account and the network"
            raise UserError(f"{path} cannot be read: {fault}; {remedy}") from error
        _explain(error, path, compression)
        raise


def _explain(error: Exception, path: str, compression: str) -> None:
    """Raises UserError for a compressed file that is damaged."""
    if isinstance(error, DAMAGES) and compression and getattr(error, "errno", None) is None:
        raise UserError(f"{path} is not a whole {compression} file ({error}); compress it again") from error
