"""A run folder: what its files are called, how one is made, found and read."""

import dataclasses
import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from train import UserError, tasks
from train.runs import hf_folder
from train.settings import flags
from train.settings.schema import Run

ROOT = Path("runs")
CONFIG, RESULT, METRICS, CHECKPOINTS = "run.json", "result.json", "metrics.jsonl", "checkpoints"


def choose_folder(run: Run) -> Path:
    """The folder that `--out` names, or the next free runs/TASK-PRESET-N. Raises UserError where another run lives there."""
    if run.out:
        folder = Path(run.out)
        if run.resume:
            return folder
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(
                f"--out={folder} already holds something; choose another folder, or add --resume to go on with the run in it"
            )
        return folder
    stem, number = f"{run.task.name}-{run.preset}", 1
    while (ROOT / f"{stem}-{number}").exists():
        number += 1
    return ROOT / f"{stem}-{number}"


def saved_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """The dotted values of the run that `--resume` means: the one in `--out`, or the newest in runs/."""
    if not given.get("out"):
        found = sorted(ROOT.glob(f"*/{CONFIG}"), key=lambda path: path.stat().st_mtime)
        if not found:
            raise UserError(f"--resume found no run in {ROOT}/; name one with --out=DIR, or start one without --resume")
        return read(found[-1].parent)
    return read(Path(given["out"]))


def read(folder: str | Path) -> dict[str, Any]:
    """The configuration in run.json, as dotted values with `out` set to the folder; of a Hugging Face folder, that of a run that could have
    made it. Raises UserError where there is none."""
    if hf_folder.here(folder):
        return hf_folder.values(folder)
    return flags.flatten(_read_json(Path(folder), "config")) | {"out": str(folder)}


def _read_json(folder: Path, section: str) -> dict[str, Any]:
    """A section of run.json."""
    path = folder / CONFIG
    try:
        return json.loads(path.read_text())[section]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{folder} is not a run folder: it has no {CONFIG} (nor config.json, as models of transformers have)"
        ) from error
    except (ValueError, KeyError) as error:
        raise UserError(f"{path} is damaged ({error}); restore it or start a new run") from error


def create(folder: Path, run: Run, processor, facts: Mapping[str, Any]):
    """Makes the folder, or brings its run.json up to date where the run goes on."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (NotADirectoryError, PermissionError) as error:
        raise UserError(f"--out={folder} cannot be made: {error.strerror}; choose another folder") from error
    if not run.resume:
        kind = tasks.find(run.task.name).PROCESSOR
        write(folder / kind.file, kind.to_text(processor))
    write_json(folder / CONFIG, describe(run, facts))


class Saved(NamedTuple):
    """What a run brings to one that goes on with it or starts from it: its processor, and the facts that run.json has about its data."""

    processor: Any
    facts: Mapping[str, Any]


def read_saved(folder: str | Path, facts: bool = True) -> Saved:
    """What is saved in a run folder; without `facts` the processor alone, for a run on other data. Raises UserError where it is missing."""
    if hf_folder.here(folder):
        return Saved(hf_folder.tokenizer(folder), hf_folder.facts(folder) if facts else {})
    return Saved(read_processor(folder), _read_json(Path(folder), "data") if facts else {})


def read_processor(folder: str | Path):
    """The processor of a run: its tokenizer, if it reads text. Raises UserError where the folder has none."""
    kind = tasks.find(_read_json(Path(folder), "config")["task"]["name"]).PROCESSOR
    path = Path(folder) / kind.file
    if not path.exists():
        raise UserError(f"{folder} is not a run folder: it has no {kind.file}")
    try:
        return kind.read(path)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); restore it or start a new run") from error


def check_text(folder: Path, facts: Mapping[str, Any]):
    """Raises UserError where the text is no longer the one that the run began with."""
    before = _read_json(folder, "data")
    if before["hash"] != facts["hash"]:
        raise UserError(
            f"the text of --data={facts['source']} has changed since {folder} began; bring the old text back, or start a new run"
        )
    if before.get("segmentation_hash", "") != facts["segmentation_hash"]:
        raise UserError(
            f"what --tokenizer.dropout drew for {folder} is no longer in the cache; bring the cache back, or start a new run"
        )


def describe(run: Run, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What run.json holds: the whole resolved configuration, the command, versions, and facts about data and devices."""
    import importlib.metadata as metadata

    names = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "tokenizers", "numpy")
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in names}
    return {"config": dataclasses.asdict(run), "command": " ".join(sys.argv), "versions": versions, **facts}


def write_json(path: Path, value: Mapping[str, Any]):
    """One JSON object, indented."""
    write(path, json.dumps(value, indent=1) + "\n")


def write(path: Path, text: str):
    """Writes a file whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
