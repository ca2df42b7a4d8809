"""Several runs in one folder: the settings they share, and what is forgotten between two of them."""

import gc
from collections.abc import Mapping
from pathlib import Path

from tfm.options.json_text import read_object
from train import UserError
from train.runs import run_folder
from train.settings import flags

FILE = "settings.json"


def check_settings(out: Path, values: Mapping[str, object]):
    """Writes the settings of a new folder. Raises UserError where those of its runs differ, or it is not a suite's."""
    path = out / FILE
    if not path.exists():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"--out={out} already holds something else; choose another folder")
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out={out} cannot be made: {error.strerror}; choose another folder") from error
        run_folder.write_json(path, values)
        return
    try:
        saved = read_object(path)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); restore it, or name a new --out") from error
    for name, value in values.items():
        if saved.get(name) != value:
            shown = [" ".join(v) if isinstance(v, list) else flags.show(v) for v in (value, saved.get(name))]
            raise UserError(
                f"{'' if name == 'flags' else f'--{name}='}{shown[0] or 'none'} differs from {shown[1] or 'none'} "
                f"of the runs in {out}; leave it as it was, or name a new folder with --out"
            )


def forget_programs():
    """Every run compiles its own programs; those of the last one would only fill the memory."""
    import jax

    jax.clear_caches()
    gc.collect()
