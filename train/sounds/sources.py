"""Sounds with a class or a text each: from folders, from tables that name files, and built-in ones.

A row is {"sound": the path of a file, or the name of a built-in sound, "label": a text}. Samples are read when a batch
needs them.
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from train import UserError
from train.data.sources import sources
from train.data.sources.files import Columns, Row
from train.screens.console import Log
from train.settings.schema import Data
from train.sounds import files, synthetic
from train.sounds.processor import SoundProcessor

# Training and validation rows.
Builtin = Callable[[], tuple[list[Row], list[Row]]]


def load(
    data: Data, reader: Columns, builtin: Builtin, log: Log, valid_only: bool = False
) -> tuple[list[Row], list[Row]]:
    """Training and validation rows; the first column of the reader holds paths, the second one labels or texts.

    `valid_only` leaves out training rows if --eval-data has a source of its own. Raises UserError for a bad source.
    """
    columns = sound, label = *reader.texts, *reader.labels

    def own(source: str) -> sources.Parts:
        return builtin() if source == "builtin" else None

    def rows_of(source: str) -> list[Row]:
        parts = own(source)
        if parts is not None:
            return parts[1]
        if Path(source).is_dir():
            return [dict(zip(columns, row, strict=True)) for row in _folder(Path(source))]
        rows = sources.read(source, data, reader, lambda: ([], []), log.info)
        return [{**row, sound: _path_in(Path(source).parent, row[sound])} for row in rows]

    train, valid = sources.divide(data, reader, own, rows_of, valid_only)
    first, second = ([{"sound": row[sound], "label": row[label]} for row in part] for part in (train, valid))
    return first, second


def readable(rows: list[Row], processor: SoundProcessor, data: Data, log: Log) -> list[Row]:
    """The rows whose sounds can be read, with their `samples`; others are left out with --data.broken=skip.

    Raises UserError for one without a sample, of another rate, or that is no sound.
    """
    kept = []
    for row in rows:
        try:
            kept.append({**row, "samples": _checked(row["sound"], processor)})
        except UserError as error:
            if data.broken != "skip":
                raise UserError(f"{error} (--data.broken=skip leaves such sounds out)") from error
            log.info(f"left out: {error}")
    if rows and not kept:
        raise UserError(f"--data={data.source} has no sound that can be read; look at its files")
    longer = sum(row["samples"] > processor.samples for row in kept)
    if longer:
        log.info(f"{longer:,} of {len(kept):,} sounds are longer than the model reads, and lose their end")
    return kept


def samples(sound: str, processor: SoundProcessor) -> np.ndarray:
    """The samples of a sound, float32 [N], as far as the model reads them. Raises UserError as `readable` does."""
    if sound.startswith(synthetic.PREFIX):
        return synthetic.samples(sound)[: processor.samples]
    return files.read(sound, processor.samples)


def stamp(row: Row) -> str:
    """What tells rows apart: the name of a sound, its samples and its label."""
    return f"{os.path.basename(row['sound'])} {row['samples']} {row['label']}"


def _checked(sound: str, processor: SoundProcessor) -> int:
    """The samples of a sound of the processor's rate."""
    if sound.startswith(synthetic.PREFIX):
        rate, count = synthetic.RATE, len(synthetic.samples(sound))
    else:
        rate, count = files.header(sound)
    if rate != processor.rate:
        raise UserError(
            f"{sound} has {rate:,} samples a second, and the model reads {processor.rate:,}; convert it, or train with "
            f"--task.sound.rate={rate}"
        )
    if not processor.frame_count(count):
        raise UserError(
            f"{sound} has {count:,} samples, fewer than the {processor.window} of a frame; leave it out, or add silence"
        )
    return count


def _folder(folder: Path) -> list[tuple[str, str]]:
    """Paths and classes of a folder with a folder for each class. Raises UserError for another one."""
    classes = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    rows = [
        (str(path), directory.name)
        for directory in classes
        for path in sorted(directory.rglob("*"))
        if path.suffix.lower() in files.ENDINGS and path.is_file()
    ]
    if not rows:
        raise UserError(
            f"{folder} has no folder with sounds ({', '.join(files.ENDINGS)}); it must have a folder for each class"
        )
    return rows


def _path_in(folder: Path, path: str) -> str:
    """The path of a sound that a table in this folder names."""
    in_folder = folder / path
    return str(in_folder if in_folder.exists() or not Path(path).exists() else Path(path))
