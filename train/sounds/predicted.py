"""Sounds that train.predict reads."""

import glob
from collections.abc import Sequence
from pathlib import Path

from train import UserError
from train.screens.console import Log
from train.settings.predict import PredictOptions
from train.settings.schema import Data
from train.sounds import files, sources
from train.sounds.processor import SoundProcessor
from train.sounds.rows import Sounds


def named_sounds(options: PredictOptions) -> list[str]:
    """The sounds that the file, the folder or the quoted glob names. Raises UserError where there are none."""
    if options.text:
        raise UserError(f"--text={options.text} is for models of texts; name sounds with --file='FOLDER/*.wav'")
    paths = [Path(name) for name in sorted(glob.glob(options.file, recursive=True))]
    inner = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    sounds = [str(path) for path in inner if path.suffix.lower() in files.ENDINGS]
    if not sounds:
        raise UserError(
            f"no sound ({', '.join(files.ENDINGS)}) matches {options.file!r}; give the path of one, or a quoted glob "
            "such as '*.wav'"
        )
    return sounds


def read_sounds(names: Sequence[str], processor: SoundProcessor, data: Data, log: Log) -> Sounds:
    """The sounds of these names. Raises UserError for one that cannot be read."""
    rows = sources.readable([{"sound": name, "label": ""} for name in names], processor, data, log)
    return Sounds(rows, processor, 0)
