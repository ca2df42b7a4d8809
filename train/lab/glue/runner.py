"""The runs of a suite: normalised data, a run for every setting and seed, and what each of them scores.

    OUT/settings.json                              what all runs share; another value needs another folder
    OUT/CoLA/data/train.jsonl, dev-CoLA.jsonl      the rows of the task, one object a line
    OUT/CoLA/rate-3e-05-batch-32-epochs-3-seed-0/  a run folder of train.main, and
        predictions-dev-CoLA.jsonl                 what its model says of the validation set
        scores.json                                its metrics; a run that has it is finished, and is not repeated

A change of the data or of the settings is refused.
"""

import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

import numpy as np

from tfm.options.json_text import Json, parse_object, read_object, read_text
from train import UserError
from train.files import cache
from train.files.strict_json import json_text
from train.lab.glue import answers, metrics
from train.lab.glue.glue_rows import GlueRow, LabelPrediction
from train.lab.glue.settings import GlueSettings, Setting
from train.lab.glue.sources import Source
from train.lab.glue.suites import GluePart, GlueTask
from train.lab.suite import forget_programs
from train.runs import run_folder
from train.settings.gate import user_errors

SCORES = "scores.json"


class Commands(NamedTuple):
    """The commands that do the work, with the words of a command line: train.main and train.predict."""

    train: Callable[[Sequence[str]], None]
    predict: Callable[[Sequence[str]], None]


class TaskData(NamedTuple):
    """The rows of a task: how many, those of its parts, the hash of all, and the answers of a constant guess."""

    train: int
    dev: dict[str, list[GlueRow]]
    hash: str
    constant: LabelPrediction


class RunScores(TypedDict):
    """scores.json: a run's seed, its metrics by part and name, their mean, its seconds and folder, the hash of its
    data."""

    seed: int
    metrics: dict[str, dict[str, float]]
    score: float
    seconds: float
    folder: str
    data: str


class TaskResult(TypedDict):
    """The result of a task.

    setting: the best one, as text
    runs: those of this setting, one a seed
    tried: scores of the first seed by setting
    majority: the score of a constant guess
    train: training rows
    dev: validation answers by part
    """

    setting: str
    runs: list[RunScores]
    tried: dict[str, float]
    majority: float
    train: int
    dev: dict[str, int]


class MeanAndDeviation(TypedDict):
    """Mean and standard deviation over seeds."""

    mean: float
    std: float


@dataclasses.dataclass(frozen=True)
class Runner:
    """Runs the tasks of a suite in the folder `out`; `log` gets a line about what happens."""

    source: Source
    settings: GlueSettings
    out: Path
    commands: Commands
    log: Callable[[str], None]

    def check(self, task: GlueTask, tests: bool):
        """Reads the rows of a task, with its test sets if `tests`, before anything is trained or written.

        Raises UserError for bad files, and for fewer rows than a batch has.
        """
        rows, size = len(self.source.train(task)), max(setting.batch for setting in self.settings.grid)
        if rows < size:
            raise UserError(
                f"{task.name} has {rows} training rows, too few for a batch of {size}; choose a smaller --batch"
            )
        for part in task.parts:
            _check_unique(self.source.dev(task, part), f"the validation set of {part.name}")
        for part in self.tested_parts(task) if tests else ():
            _check_unique(self.source.test(task, part), f"the test set of {part.name}")

    def tested_parts(self, task: GlueTask) -> list[GluePart]:
        """The parts with a test set; a diagnostic set may be missing, but no other."""
        return [part for part in task.parts if part.counts or self.source.has_test(part)]

    def run(self, task: GlueTask, seeds: int) -> TaskResult:
        """All runs of a task: every setting with the first seed, the best one with the others."""
        data = self._write_data(task)
        by_setting = [(setting, self._finish_run(task, data, setting, 0)) for setting in self.settings.grid]
        best, first = max(by_setting, key=lambda pair: pair[1]["score"])
        runs = [first, *(self._finish_run(task, data, best, seed) for seed in range(1, seeds))]
        return {
            "setting": best.text(self.settings.steps),
            "runs": runs,
            "tried": {setting.text(self.settings.steps): result["score"] for setting, result in by_setting},
            "majority": self._constant_score(task, data),
            "train": data.train,
            "dev": {name: len(answers.gold(task, rows)) for name, rows in data.dev.items()},
        }

    def answer_test(self, task: GlueTask, part: GluePart, run: RunScores) -> answers.Answers:
        """The answers of a run to the test set of a part."""
        rows = self.source.test(task, part)
        path = self.out / task.name / "data" / f"test-{part.name}.jsonl"
        _write_rows(path, rows)
        return answers.predicted(task, rows, self._predictions(Path(run["folder"]), path))

    def drop_weights(self, task: GlueTask, kept: Path):
        """Removes the checkpoints of all finished runs of a task but those of one folder."""
        for path in (self.out / task.name).glob(f"*/{SCORES}"):
            if path.parent != kept:
                shutil.rmtree(path.parent / run_folder.CHECKPOINTS, ignore_errors=True)

    def _write_data(self, task: GlueTask) -> TaskData:
        train = self.source.train(task)
        parts = {part.name: self.source.dev(task, part) for part in task.parts}
        dev = {name: rows for name, rows in parts.items() if rows}
        folder = self.out / task.name / "data"
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in (("train", train), *((f"dev-{name}", rows) for name, rows in dev.items())):
            _write_rows(folder / f"{name}.jsonl", rows)
        digest = cache.digest([json.dumps(row) for rows in (train, *dev.values()) for row in rows])
        return TaskData(len(train), dev, digest, answers.constant(task, train))

    def _finish_run(self, task: GlueTask, data: TaskData, setting: Setting, seed: int) -> RunScores:
        """The scores of a run, which is trained first, or trained on, where it is not finished."""
        name = setting.text(self.settings.steps).replace(", ", "-").replace(" ", "-")
        folder = self.out / task.name / f"{name}-seed-{seed}"
        if (folder / SCORES).exists():
            result = cast(RunScores, _read_json(folder / SCORES))
            if result["data"] != data.hash:
                raise UserError(
                    f"the files of {task.name} have changed since {folder}; restore them, or name a new --out"
                )
            self.log(f"{task.name}: {folder.name} is finished")
            return result
        self.log(f"{task.name}: {folder}")
        if not (folder / run_folder.RESULT).exists():
            self.commands.train(self._train_words(task, data.train, setting, seed, folder))
            forget_programs()
        if not (folder / run_folder.RESULT).exists():
            raise KeyboardInterrupt  # train.main has saved its state; the same command goes on
        values = {name: self._measure(task, name, rows, folder) for name, rows in data.dev.items()}
        result = {
            "seed": seed,
            "metrics": values,
            "score": metrics.score(task, values),
            "seconds": cast(float, _read_json(folder / run_folder.RESULT)["seconds"]),
            "folder": str(folder),
            "data": data.hash,
        }
        run_folder.write_json(folder / SCORES, result)
        return result

    def _train_words(self, task: GlueTask, rows: int, setting: Setting, seed: int, folder: Path) -> list[str]:
        """The command line of a run; of one that was interrupted, what resumes it."""
        if (folder / run_folder.CONFIG).exists():
            return ["--resume", f"--out={folder}"]
        data = self.out / task.name / "data"
        steps = self.settings.steps or max(1, int(rows / setting.batch * setting.epochs))
        every = max(1, round(steps / max(1, setting.epochs)))
        return [
            *self.settings.words(task),
            f"--data={data}/train.jsonl",
            f"--eval-data={data}/dev-{task.parts[0].name}.jsonl",
            f"--steps={steps}",
            f"--batch.size={setting.batch}",
            f"--optim.rate={setting.rate!r}",
            f"--eval.every={every}",
            f"--checkpoint.every={every}",
            f"--seed={seed}",
            f"--out={folder}",
        ]

    def _measure(self, task: GlueTask, name: str, rows: Sequence[GlueRow], folder: Path) -> dict[str, float]:
        """The metrics of a part for a run."""
        part = next(part for part in task.parts if part.name == name)
        predictions = self._predictions(folder, self.out / task.name / "data" / f"dev-{name}.jsonl")
        return metrics.measure(task, part, answers.gold(task, rows), answers.predicted(task, rows, predictions))

    def _predictions(self, folder: Path, path: Path) -> list[LabelPrediction]:
        """What the model of a run says of the rows of a file; kept in the run folder."""
        saved = folder / f"predictions-{path.name}"
        if not saved.exists():
            self.commands.predict([f"--run={folder}", f"--file={path}", f"--to={saved}"])
            forget_programs()
        with user_errors():
            lines = [parse_object(line, str(saved)) for line in read_text(saved).split("\n") if line]
        return cast(list[LabelPrediction], lines)

    def _constant_score(self, task: GlueTask, data: TaskData) -> float:
        """The score of the most frequent class, or of the mean value."""
        values = {}
        for part in task.parts:
            if rows := data.dev.get(part.name):
                guesses = answers.predicted(task, rows, [data.constant] * len(rows))
                values[part.name] = metrics.measure(task, part, answers.gold(task, rows), guesses)
        return metrics.score(task, values)


def _check_unique(rows: Sequence[GlueRow], where: str):
    """Raises UserError for an index that occurs twice: servers would not know which row is meant."""
    counts = Counter(f"{row['idx']} {row.get('entity', '')}".strip() for row in rows)
    key, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    if count > 1:
        raise UserError(f"{where} has the index {key} {count} times; fetch its files again")


def _write_rows(path: Path, rows: Sequence[GlueRow]):
    run_folder.write(path, "".join(json_text(row) + "\n" for row in rows))


def _read_json(path: Path) -> dict[str, Json]:
    try:
        return read_object(path)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); remove it, and it is made again") from error


def mean_and_deviation(values: Sequence[float]) -> MeanAndDeviation:
    """Mean, and the standard deviation of a sample (n - 1), 0 of one value."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0}
