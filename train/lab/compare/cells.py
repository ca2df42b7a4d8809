"""The cells of a comparison: runs of train.main, each done once, with a record beside its folder.

OUT/ROW/seed-0/                       a run folder
OUT/ROW/seed-0.json                   its words for train.main, whether it is done, and what it reached
OUT/ROW/trials/optim.rate=0.001.json  the record of a trial, and its run folder beside it
"""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict, cast

from tfm.options.json_text import read_object
from train import DivergedError, OutOfMemoryError, UserError, sentence
from train.lab.suite import forget_programs
from train.runs import claim, run_folder
from train.tasks.table import AnyRun

# What became of a run.
STARTED, DONE, DIVERGED, OUT_OF_MEMORY = "started", "done", "not finite", "out of memory"

# What result.json has beside metrics.
_FACTS = ("steps", "seconds", "params")


class RunRecord(TypedDict, total=False):
    """The record of a run.

    words: its words for train.main
    folder: its run folder
    status: STARTED, DONE, DIVERGED or OUT_OF_MEMORY
    error: why it failed
    metrics: the numbers that it reached
    data: the hash of the data, and of the tokenizer
    name: of a trial: what is tried
    chosen, chosen_words: of the best trial: True, and its own words
    """

    words: list[str]
    folder: str
    status: str
    error: str
    metrics: dict[str, float]
    data: list[str]
    name: str
    chosen: bool
    chosen_words: list[str]


@dataclasses.dataclass(frozen=True)
class Cells:
    """Runs cells with `train`, the function of train.main; `log` gets a line about each.

    keep_checkpoints: whether those of finished runs stay
    """

    train: Callable[[Sequence[str]], None]
    log: Callable[[str], None]
    keep_checkpoints: bool = True

    def finish(self, folder: Path, words: Sequence[str], failure: str = "") -> RunRecord:
        """The record of a run, which is trained first, or trained on, where it is not finished.

        With a `failure` it is none to be trained. Raises UserError if the folder has a run with other flags.
        """
        path = folder.with_name(f"{folder.name}.json")
        record = _read(path)
        if record and record["words"] != list(words):
            raise UserError(
                f"{folder} was trained with other flags ({_changed(record['words'], words)}); "
                "leave them as they were, or name a new folder with --out"
            )
        if record and record["status"] != STARTED:
            return record
        if failure:
            outcome: RunRecord = {"status": OUT_OF_MEMORY, "error": failure}
        else:
            folder.parent.mkdir(parents=True, exist_ok=True)
            run_folder.write_json(path, {"words": list(words), "status": STARTED})
            self.log(f"training {folder}")
            outcome = self._outcome(folder, words)
        folder.parent.mkdir(parents=True, exist_ok=True)
        record = {"words": list(words), "folder": str(folder), **outcome}
        run_folder.write_json(path, record)
        if not self.keep_checkpoints:
            shutil.rmtree(folder / run_folder.CHECKPOINTS, ignore_errors=True)
        return record

    def _outcome(self, folder: Path, words: Sequence[str]) -> RunRecord:
        """What becomes of a run. Raises KeyboardInterrupt if it has stopped before its end."""
        try:
            if not (folder / run_folder.RESULT).exists():
                self.train(_command(folder, words))
        except DivergedError as error:
            return {"status": DIVERGED, "error": sentence(error)}
        except (OutOfMemoryError, MemoryError) as error:
            return {"status": OUT_OF_MEMORY, "error": sentence(error)}
        finally:
            forget_programs()
        if not (folder / run_folder.RESULT).exists():
            raise KeyboardInterrupt  # train.main has saved its state; the same command goes on
        result, data = read_object(folder / run_folder.RESULT), run_folder.RunFolder(folder).facts
        metrics = {_metric(name): value for name, value in result.items() if _is_number(value)}
        return {"status": DONE, "metrics": metrics, "data": [data["hash"], data.get("tokenizer", "")]}


def _metric(name: str) -> str:
    """A name of result.json as tables have it: `bleu`, of what a model wrote for validation texts, is `eval_bleu`."""
    return name if name in _FACTS or name.startswith("eval_") else f"eval_{name}"


def _command(folder: Path, words: Sequence[str]) -> list[str]:
    """The words that start a run, or resume it.

    What a process has left that died before it wrote run.json is removed.
    """
    if (folder / run_folder.CONFIG).exists():
        return ["--resume", f"--out={folder}"]
    if folder.exists():
        with claim.claimed_folder(AnyRun(out=str(folder), resume=True)):
            for path in folder.iterdir():
                if path.name != claim.OWNER:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return [*words, f"--out={folder}"]


def _read(path: Path) -> RunRecord:
    """A record; empty if there is none. Raises UserError if it is damaged."""
    if not path.exists():
        return {}
    try:
        record = read_object(path)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); remove it and its run, and they are made again") from error
    if not isinstance(record.get("words"), list) or not isinstance(record.get("status"), str):
        raise UserError(f"{path} is no record of a run; remove it and its run, and they are made again")
    return cast(RunRecord, record)


def _changed(before: Sequence[str], after: Sequence[str]) -> str:
    """The words that only one of two command lines has."""
    return " ".join([word for word in before if word not in after] + [word for word in after if word not in before])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
