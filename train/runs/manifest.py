"""The manifest of a checkpoint: its step, and the sizes and checksums of its files.

It is written into the unfinished checkpoint, just before its folder takes its name: a checkpoint without a manifest was
never finished, or an earlier version wrote it.
"""

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

import jax

from tfm.options.json_text import Json
from train.devices import distributed
from train.files import buckets, checksum
from train.files.buckets import Folder

NAME = "manifest.json"

# Orbax writes them after the manifest: when the checkpoint was made, and that it was.
_WRITTEN_LATER = ("_CHECKPOINT_METADATA", "commit_success.txt")

_SAMPLE = 1 / 16  # of the pieces


def write(folder: Folder, step: int):
    """Writes the manifest of the files that are in the folder of a checkpoint: of each, its size and its checksums."""
    entries = _summed(folder) if isinstance(folder, Path) else buckets.entries(folder)
    files = {name: entry for name, entry in entries.items() if name not in _WRITTEN_LATER}
    (folder / NAME).write_text(json.dumps({"step": step, "files": files}, indent=1) + "\n")


def _summed(folder: Path) -> dict[str, list[Json]]:
    """The size of every file, and the checksums of its pieces, by its name in the folder."""
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    files: dict[str, list[Json]] = {name: [(folder / name).stat().st_size] for name in names}
    pieces = [(name, piece) for name in files for piece in checksum.pieces(folder / name)]
    values = checksum.of_pieces([piece for _, piece in pieces])
    for (name, _), value in zip(pieces, values, strict=True):
        files[name].append(value)
    return files


def damage(folder: Folder, items: Iterable[str], verify: str = "all") -> str | None:
    """What is wrong with some items of a checkpoint, the subfolders that will be read; None if they are whole.

    `verify` is all, sample or none: whether all pieces of files are compared, some, or only their sizes. Several
    processes share the work, and come to the same end.
    """
    verdict = _damage_of_share(folder, tuple(items), verify)
    if distributed.any_process(verdict is not None):
        return verdict or "another process cannot read it whole"
    return None


def _damage_of_share(folder: Folder, items: tuple[str, ...], verify: str) -> str | None:
    """What is wrong with the pieces of files that this process compares."""
    try:
        manifest = json.loads((folder / NAME).read_bytes())
    except FileNotFoundError:
        return f"it has no {NAME}: it was never finished, or an earlier version wrote it"
    except (ValueError, RecursionError):
        return f"{NAME} is no JSON"
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        return f"{NAME} names no files"
    if manifest.get("step") != int(folder.name):
        return f"{NAME} says that it is of step {manifest.get('step')}"
    files = manifest["files"]
    absent = [item for item in items if not any(name.startswith(f"{item}/") for name in files)]
    if absent:
        return f"{NAME} names no file of {absent[0]}"
    prefixes = tuple(f"{item}/" for item in items)
    return _difference(folder, {name: entry for name, entry in files.items() if name.startswith(prefixes)}, verify)


def _difference(folder: Folder, files: Mapping[str, Json], verify: str) -> str | None:
    """The first file that is not as its entry says, of those that this process reads.

    A bucket has summed its files itself, and none is read for that.
    """
    if not isinstance(folder, Path):
        return _difference_in_bucket(buckets.entries(folder), files, verify)
    expected: dict[checksum.FilePiece, str] = {}
    for name, entry in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        pieces = checksum.pieces(path)
        if not isinstance(entry, list) or entry[:1] != [path.stat().st_size] or len(entry) != 1 + len(pieces):
            return f"{name} has not the size that {NAME} says"
        expected |= zip(pieces, entry[1:], strict=True)
    share = [] if verify == "none" else list(expected)[jax.process_index() :: jax.process_count()]
    if verify == "sample":
        share = [piece for piece in share if random.random() < _SAMPLE]
    for piece, value in zip(share, checksum.of_pieces(share), strict=True):
        if value != expected[piece]:
            return f"{piece.path.relative_to(folder)} differs from its checksum"
    return None


def _difference_in_bucket(actual: Mapping[str, Json], files: Mapping[str, Json], verify: str) -> str | None:
    """The first file that is not as its entry says, by the entries that a bucket has now."""
    for name, entry in files.items():
        now = actual.get(name)
        if not isinstance(now, list):
            return f"{name} is missing"
        if not isinstance(entry, list) or entry[:1] != now[:1]:
            return f"{name} has not the size that {NAME} says"
        if verify != "none" and entry != now:
            return f"{name} differs from its checksum"
    return None
