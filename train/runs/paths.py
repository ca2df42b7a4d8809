"""Paths of a run: of its checkpoints, and those that it reads again from another directory than it began in."""

import glob
import os
from collections.abc import Mapping
from pathlib import Path

from train.files import buckets
from train.files.buckets import Folder
from train.settings.text import BY_HASH


def checkpoint_steps(folder: Folder) -> list[int]:
    """The steps of the finished checkpoints in a folder, in order: they took their names, or a bucket has all files."""
    if not isinstance(folder, Path):
        return buckets.steps(folder)
    names = os.listdir(folder) if folder.exists() else []
    steps = (int(name) for name in names if name.isdecimal() and (folder / name).is_dir())
    return sorted(step for step in steps if str(step) in names)


def unfinished_names(folder: Folder) -> list[str]:
    """The steps of the checkpoints in a folder that were never finished, as their names say them."""
    if not isinstance(folder, Path):
        return [str(step) for step in buckets.unfinished_steps(folder)]
    return [path.name.split(".")[0] for path in sorted(folder.glob("*orbax-checkpoint-tmp*"))]


def seen_from_here(values: Mapping[str, object], directory: object) -> dict[str, object]:
    """Values of a run: what it reads again when it goes on, with relative paths in full where they lead nowhere here,
    and did in `directory`.

    Paths are joined by commas; each may be a glob. What is no path stays as it is.
    """
    return {name: _source(str(values[name]), str(directory)) for name in BY_HASH}


def _source(source: str, directory: str) -> str:
    if not source or _leads_somewhere(source):
        return source
    return ",".join(_full(path, directory) for path in source.split(","))


def _full(path: str, directory: str) -> str:
    full = str(Path(directory, path))
    return full if path and not _leads_somewhere(path) and _leads_somewhere(full) else path


def _leads_somewhere(path: str) -> bool:
    return Path(path).exists() or bool(glob.glob(path, recursive=True))
