"""Where the lines that a command finds go: to stdout, or to a file that appears when it is complete."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from train import UserError


@contextlib.contextmanager
def lines(to: str) -> Iterator[Callable[[str], None]]:
    """A function that writes a line to the file `to`, or to stdout where it is empty. Raises UserError where it cannot be written."""
    if not to:
        yield print
        return
    path = Path(to)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            yield lambda line: print(line, file=file)
        os.replace(part, path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise UserError(f"--to={to} cannot be written: {error.strerror}; choose another file") from error
    finally:
        part.unlink(missing_ok=True)
