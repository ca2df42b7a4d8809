"""The output of a command: lines to stdout, or a file that takes its name when it is complete."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from train import UserError


@contextlib.contextmanager
def line_writer(to: str, flag: str = "to") -> Iterator[Callable[[str], None]]:
    """A function that writes a line to the file `to`, or to stdout if `to` is empty.

    Raises UserError, which names the flag, if the file cannot be written.
    """
    if not to:
        yield print
        return
    with whole_file(to, flag) as part, part.open("w", encoding="utf-8") as file:
        yield lambda line: print(line, file=file)


@contextlib.contextmanager
def whole_file(to: str, flag: str = "to") -> Iterator[Path]:
    """The path of a file to write, which takes the name `to` when it is complete, and is removed if it is not.

    Raises UserError, which names the flag, if the file cannot be written.
    """
    path = Path(to)
    if not path.name:
        raise UserError(f"--{flag}={to} names no file; choose another file")
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        os.replace(part, path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise UserError(f"--{flag}={to} cannot be written: {error.strerror}; choose another file") from error
    finally:
        part.unlink(missing_ok=True)
