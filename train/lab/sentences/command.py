"""SentEval: `python -m train.sentences --run=FOLDER|--encoder=bow:FILE --data=FOLDER [--tasks=MR,TREC]`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

import numpy as np

from tfm.options.json_text import read_object
from train import UserError, exit_code
from train.files import cache
from train.lab.embedding.options import Encode, TextEncoderOptions, open_encoder
from train.lab.sentences import table
from train.lab.sentences.evaluation import LoadedTask, SentEvalResult, check_rows, measure, trainings
from train.lab.sentences.settings import PROTOCOLS, Settings
from train.runs import run_folder
from train.settings import flags

USAGE = """usage: python -m train.sentences --run=FOLDER|--encoder=bow:FILE --data=FOLDER[,FOLDER] [--tasks=NAME,NAME]
                                 [--pool=mean|first|last|max|ends] [--layer=-1] [--protocol=comparable|prototype]
       python -m train.sentences --compare=FOLDER,FOLDER [--out=FOLDER]

Measures vectors of sentences by the tasks of SentEval (Conneau and Kiela 2018), with its folds, seeds, features and
classifiers, and prints one table. FOLDER is what its download script fills; by default all tasks that are there. The
same command goes on after an interruption. --compare makes one table of the results of several encoders."""


# What a suite that goes on has to say again.
_FIXED = ("run", "encoder", "pool", "layer", "length", "expand", "prompt", "protocol", "classifier")


@dataclasses.dataclass(frozen=True)
class SentencesOptions(TextEncoderOptions):
    """What to measure.

    data: folders with the files of the tasks, joined by commas
    tasks: names of tasks, joined by commas; by default all that are there
    out: the folder of the results, by default runs/sentences-NAME; finished tasks in it are not repeated. With compare
        the folder of its table, by default none
    protocol: comparable | prototype: the settings that SentEval calls so, which the flags below may change
    compare: folders of results, joined by commas, a row of one table each; a folder of such folders, one a seed, is a
        row of their means
    """

    data: str = ""
    tasks: str = ""
    out: str = ""
    protocol: Literal["comparable", "prototype"] = "comparable"
    classifier: Settings = Settings()
    compare: str = ""

    def __post_init__(self):
        if self.compare:
            if self.run or self.encoder or self.data:
                raise ValueError("compare=FOLDER,FOLDER shows results that are there; leave run, encoder and data out")
            return
        super().__post_init__()
        if not self.data:
            raise ValueError("data=FOLDER must name the folder with the files of the tasks")


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(run, argv)


def run(argv):
    """Measures the tasks that are not finished, and prints the table; or a table of several encoders."""
    if flags.print_help(SentencesOptions, USAGE, argv):
        return
    from train.screens.console import Log

    options = _options(argv)
    if options.compare:
        table.compare(options.compare, options.out, Log())
    else:
        measure_all(options, Log())


def measure_all(options: SentencesOptions, log):
    """Measures the tasks that are not finished, and prints the table."""
    values = dataclasses.asdict(options)
    fixed = {name: values[name] for name in _FIXED}

    from train.lab import suite
    from train.lab.sentences import read_tasks

    out = Path(options.out or _default_out(options))
    tasks = read_tasks(options.data, options.tasks)
    for task in tasks:
        check_rows(task, options.classifier)
    encoder = _Opened(options, log)
    if not all(_path(out, task).exists() for task in tasks):
        encoder.open()
    suite.check_settings(out, fixed)
    results = {task.task.name: _finish(out, task, encoder, options, log) for task in tasks}
    summary = table.summary(results)
    shown = table.text(summary)
    run_folder.write_json(out / table.RESULTS, fixed | {"data": options.data, **summary})
    run_folder.write(out / table.TABLE, shown + "\n")
    table.draw(summary, out / "plots" / table.PICTURE)
    print(shown)
    log.info(f"saved in {out}: {table.RESULTS}, {table.TABLE}, plots/{table.PICTURE}, a file for every task")


class _Opened:
    """The encoder, opened when it is needed: a finished suite is shown again without it."""

    def __init__(self, options: TextEncoderOptions, log):
        self.options, self.log = options, log
        self.encode: Encode | None = None
        self.last: tuple[Sequence[str], np.ndarray] | None = None

    def open(self):
        """Reads the folder, or the file."""
        self.encode = open_encoder(self.options, self.log)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of texts; two tasks on the same texts, such as those of SICK, share them."""
        if self.last is None or self.last[0] != texts:
            assert self.encode is not None
            self.last = texts, self.encode(texts)
        return self.last[1]


def _options(argv) -> SentencesOptions:
    """The flags, over the settings of the protocol that they name."""
    parsed = flags.parse(argv)
    name = parsed["protocol"].text if "protocol" in parsed else "comparable"
    protocol = {f"classifier.{key}": value for key, value in PROTOCOLS.get(name or "", {}).items()}
    return flags.build(SentencesOptions, protocol, parsed)


def _default_out(options: SentencesOptions) -> Path:
    runs = "-".join(Path(path).resolve().name for path in options.runs)
    name = runs if options.run else Path(options.encoder.partition(":")[2]).stem
    return run_folder.ROOT / f"sentences-{name}"


def _path(out: Path, task: LoadedTask) -> Path:
    return out / f"{task.task.name}.json"


def _finish(out: Path, task: LoadedTask, encoder: _Opened, options: SentencesOptions, log) -> SentEvalResult:
    """The result of a task, which is measured where there is none. Raises UserError where its files have changed."""
    path, name = _path(out, task), task.task.name
    digest = cache.digest(task.data.sentences(), [str(rows.labels.tolist()) for rows in task.data.parts.values()])
    if path.exists():
        try:
            saved = read_object(path)
        except ValueError as error:
            raise UserError(f"{path} is damaged ({error}); remove it, and it is made again") from error
        if saved.get("data") != digest:
            raise UserError(f"the files of {name} have changed since {path}; restore them, or name a new --out")
        log.info(f"{name}: finished before")
        return cast(SentEvalResult, saved)
    with log.progress(name, trainings(task, options.classifier)) as advance:
        result = measure(encoder, task, options.classifier, advance)
    result["data"] = digest
    metric, value = table.score(result)
    log.info(f"{name}: {metric} {value['value']:.2f} after {result['seconds']:.0f} s")
    run_folder.write_json(path, result)
    return result
