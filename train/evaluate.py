"""Metrics of a run on its validation text or on any other: `python -m train.evaluate --run=DIR [--data=SOURCE]`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import contextlib
import dataclasses
import math
import sys
from collections.abc import Mapping

from tfm.options.choices import check_fields, check_maximum, check_minimum
from train import UserError, exit_code
from train.files.lines import line_writer
from train.files.strict_json import json_text
from train.runs.hf_folder import HfFolder
from train.runs.languages import open_for
from train.runs.run_folder import RunFolder
from train.runs.weights import as_weights
from train.settings import flags, schema
from train.settings.limits import MAX_BEAMS
from train.settings.predict import Weights
from train.tasks import resolve, table
from train.tasks.lm.options import MAX_SHOTS
from train.tasks.translate.options import WRITTEN_METRICS, Scores

USAGE = """usage: python -m train.evaluate --run=DIR [--data=SOURCE] [--average=N] [--weights=int8]
                                [--stride=N | --shots=0,1,2 | --beams=N --against=FILE | --to=FILE --nbest=FILE]

Prints one JSON object of metrics. Without --data, the run's own validation text is used. --data.field=NAME,
--data.header=false, --data.format=text and the like say how to read SOURCE."""


@dataclasses.dataclass(frozen=True)
class EvaluateOptions:
    """What to evaluate.

    run: the run folder
    data: text to evaluate on, all of it; empty for the run's own validation text
    average: the newest checkpoints whose mean is evaluated
    weights: trained | int8: kernels and tables in eight bits; metrics named `_change` say what that costs
    stride: tokens between starts of rows of a language model, or of windows of a tagger or on a passage; each token
        counts once, and of a folder of transformers the first of a text, which nothing stands before, does not
    length: of a language model: tokens that it reads at a time; by default those of training, or of a folder of
        transformers as many as its model has positions, 1,024 at most
    memory: of a language model trained with one: tokens of the rows before whose states every layer sees
    shots: of a language model and texts of examples: counts of examples before an answer, such as 0,1,2,4,8; each adds
        loss_shots_N and accuracy_shots_N, of the tokens of that answer
    beams: of a translation model: translations that are followed at a time; 1 is greedy; by default as in training
    length_penalty: of a translation model: above 0, longer translations are preferred; by default as in training
    scores: bleu | rouge | answers: of a translation model: what its texts are judged by; by default as in training
    source: of a translation model with several languages: that of the sources; by default as its folder says
    target: of such a model: the language to translate into
    against: of a translation model: a file of other translations, one a line, to compare these with
    null_threshold: of answers: the least score of no answer, over that of the best one, that is too much for an answer
    max_answer: of answers: the tokens of the longest one
    to: of answers: the file for them, {id: text}, as the official evaluators of SQuAD read it; of boxes, as COCO's does
    nbest: of answers: the file for the best answers to each question, with probabilities and logits
    """

    run: str = ""
    data: str = ""
    average: int = 1
    weights: Weights = "trained"
    stride: int | None = None
    length: int | None = None
    memory: int | None = None
    shots: str | None = None
    beams: int = 5
    length_penalty: float = 0.6
    scores: Scores = "bleu"
    source: str = ""
    target: str = ""
    against: str = ""
    null_threshold: float = 0.0
    max_answer: int = 30
    to: str = ""
    nbest: str = ""

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, average=1, beams=1, length=1)
        self.shot_counts()
        check_maximum(self, "every beam is a text in memory", beams=MAX_BEAMS)

    def shot_counts(self) -> list[int]:
        """Counts of examples before an answer. Raises ValueError for anything else."""
        words = [] if self.shots is None else self.shots.split(",")
        if not all(word.isdecimal() and int(word) <= MAX_SHOTS for word in words):
            raise ValueError(f"shots={self.shots} must be counts of examples, such as 0,1,2,4,8")
        return [*map(int, words)]


# Flags that every task reads, and those that name files to write.
COMMON = {"run", "data", "average", "weights"}
FILES = ("to", "nbest")
LANGUAGES = ("source", "target")

# Metrics by the examples before an answer.
_BY_SHOTS = ("loss", "accuracy")

# Metrics that --weights=int8 compares with those of the weights as they were trained.
_COMPARED = ("loss", "perplexity", "accuracy", "bits_per_byte", *WRITTEN_METRICS)


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(evaluate, argv)


def evaluate(argv):
    """Loads a model and measures it."""
    changes, argv = resolve.split_data_flags(argv)
    options = flags.options(EvaluateOptions, USAGE, argv)
    if options is None:
        return
    if not options.run:
        raise UserError("say which run to evaluate with --run=DIR")
    folder = open_for(options, changes)
    explicit = flags.explicit_options(options, argv)
    run = _configure(folder.values, options, explicit)
    _check(options, run, set(explicit))
    with contextlib.ExitStack() as stack:
        names = [name for name in FILES if explicit.get(name)]
        writers = {name: stack.enter_context(line_writer(explicit[name], name)) for name in names}
        metrics, contents = _measure(options, folder, run, bool(names))
        metrics = {**metrics, **_by_shots(options, folder, run)}
        for name, write in writers.items():
            write(json_text(contents[name]))
    lengths = {"length": run.batch.length} if run.task.name == "lm" else {}
    print(json_text({**metrics, **lengths}))


def _by_shots(options: EvaluateOptions, folder: RunFolder | HfFolder, run: schema.Run) -> dict[str, object]:
    """The metrics of the answers behind so many examples, for each count that is asked for."""
    metrics: dict[str, object] = {}
    for count in options.shot_counts():
        task = dataclasses.replace(run.task, shots=count)
        of_count = _measure(options, folder, dataclasses.replace(run, task=task), writes=False)[0]
        metrics |= {f"{name}_shots_{count}": of_count[name] for name in _BY_SHOTS}
    return metrics


def _measure(
    options: EvaluateOptions, folder: RunFolder | HfFolder, run: schema.Run, writes: bool
) -> tuple[Mapping[str, object], Mapping[str, Mapping[str, object]]]:
    """The metrics, and, if it `writes`, what the task writes into files."""
    import jax

    import tfm
    from train.data import targets
    from train.devices import capacity
    from train.devices.mesh import available_devices
    from train.screens.console import Log
    from train.tasks.record import measure
    from train.text import control_tokens
    from train.training import evaluation, step
    from train.training.job import Job

    log = Log()
    task = table.task_of(run)
    with control_tokens.reading(run.data.control_tokens):
        corpus = task.load(run, log, folder, valid_only=True)
    targets.check_targets(corpus, task.batch_spec(run), valid_flag="--data")
    devices = available_devices()
    capacity.check_tokens(run.model, run.batch.unit * run.row_tokens, flags="batch in run.json")
    mesh = tfm.make_mesh(devices=devices[: math.gcd(run.batch.unit, len(devices))])
    params = folder.load(mesh, log.info, options.average)
    if not isinstance(params, type(task.specs(run))):
        raise UserError(
            f"--run={options.run} holds a model without a head that could be measured; fine-tune it first with --init"
        )
    eval_step = step.make_eval_step(task.loss, run.model)
    with jax.set_mesh(mesh):
        trained, params = params, as_weights(options.weights, folder, params, log)
        outputs = evaluation.measure(eval_step, params, corpus, Job(run, task, mesh))
        metrics = measure(task, outputs, corpus)
        metrics |= task.generation_metrics(params, run, corpus, log, against=options.against)
        if params is not trained:
            before = measure(task, evaluation.measure(eval_step, trained, corpus, Job(run, task, mesh)), corpus)
            before |= task.generation_metrics(trained, run, corpus, log)
            metrics |= {f"{name}_change": metrics[name] - before[name] for name in _COMPARED if name in before}
    contents = task.evaluation_files(outputs, corpus) if writes else {}
    return metrics | task.baselines(corpus), contents


def _check(options: EvaluateOptions, run: schema.Run, explicit: set[str]):
    """Raises UserError for flags of another task that are no options of it."""
    options_of_tasks = {name for entry in table.ENTRIES for name in _field_names(entry.options)}
    foreign = sorted(explicit - COMMON - options_of_tasks - set(table.task_of(run).evaluate_flags))
    if foreign:
        raise UserError(
            f"--{foreign[0]} is no flag of --task={run.task.name}, for which {options.run} was trained; leave it out"
        )


def _configure(values: Mapping[str, object], options: EvaluateOptions, explicit: Mapping[str, object]) -> schema.Run:
    """The saved run with the data and the task options of the flags. Raises UserError for flags of another task."""
    changes: dict[str, object] = {"model.kernel": "auto"}  # that of the run was for the devices of its training
    changes |= {"data.eval": options.data} if options.data else {}
    if "shots" in explicit and "task.shots" not in values:
        raise UserError(f"--shots belongs to --task=lm, and --run={options.run} was trained for {values['task']}")
    for name in set(explicit) - {*LANGUAGES, "shots"}:
        owners = [task for task, entry in table.TASKS.items() if name in _field_names(entry.options)]
        if owners and f"task.{name}" not in values:
            flag = name.replace("_", "-")
            raise UserError(
                f"--{flag} belongs to --task={' or '.join(owners)}, and --run={options.run} was trained for "
                f"{values['task']}"
            )
        if owners:
            changes[f"task.{name}"] = explicit[name]
    if options.length is not None:
        changes["batch.length"] = options.length
    return flags.build(table.AnyRun, {**values, **changes})


def _field_names(section: type) -> list[str]:
    return [field.name for field in dataclasses.fields(section)]


if __name__ == "__main__":
    sys.exit(main())
