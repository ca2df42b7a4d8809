"""From the command line to a run: defaults, a preset, a saved run and flags, each layer over the one before."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfm.config import suggest
from train import UserError, flags
from train.config import TASKS, Mlm, Run
from train.presets import PRESETS

USAGE = """usage: python -m train.main --task=NAME [--preset=NAME] [--data=SOURCE] [--section.field=value ...]

SOURCE is builtin, a path or glob of .txt, .jsonl, .tsv or .csv files, each optionally .gz, or tfds:NAME[:SPLIT]. Flags and what they
are now:"""

ALIASES = {"task": "task.name", "data": "data.source", "eval-data": "data.eval"}

# What may differ between a saved run and its resumption.
MAY_CHANGE = ("steps", "stop_at", "resume", "out", "log.", "eval.", "mesh.", "checkpoint.")

# What of a model is a choice of the run, and not handed on with its weights.
_OF_THE_RUN = ("model.dtype", "model.dropout", "model.scan", "model.remat", "model.classes", "model.pool")

# What of a tokenizer is no part of it.
_OF_TOKENIZING = ("tokenizer.dropout", "tokenizer.draws")

FLAGS = {task: flags.flags_of(Run, {"task.name": task}) for task in TASKS}


def resolve(argv: Sequence[str], resumed, read) -> tuple[Run, dict[str, Any]]:
    """Command line -> the run, and the dotted values that were decided on purpose: by preset, saved run or flag.

    `resumed` maps the flags to the values of the run that `--resume` means, `read` maps a run folder to its values. Raises UserError for
    whatever does not fit.
    """
    given = _parse(argv)
    if given.get("resume"):
        values = _resumed_values(given, resumed(given))
    else:
        values = _fresh_values(given, read(given["init"]) if given.get("init") else {})
    return flags.build(Run, values), values


def _parse(argv: Sequence[str]) -> dict[str, Any]:
    """The flags that are given, of whatever task."""
    everything = {name: flag for known in reversed(FLAGS.values()) for name, flag in known.items()}
    return flags.parse(argv, everything, ALIASES)


def _resumed_values(given: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """The saved run, with what may change changed."""
    before = {name: value for name, value in saved.items() if name not in ("stop_at", "resume")}
    for name, value in given.items():
        if value != before.get(name) and not name.startswith(MAY_CHANGE):
            flag, was = name.replace("_", "-"), before.get(name)
            raise UserError(f"--{flag}={value} differs from {was} in the run to resume; leave it out, or start a new run")
    return {**before, **given}


def _fresh_values(given: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    """Preset and flags; the model is that of the run that `--init` names, unless a preset says otherwise."""
    task = given.get("task.name", Mlm.name)
    if task not in TASKS:
        raise UserError(f"--task={task} is unknown{suggest(task, TASKS)}")
    if foreign := [name for name in given if name not in FLAGS[task]]:
        raise UserError(f"--{foreign[0].replace('_', '-')} belongs to another task than --task={task}; leave it out")
    inherited = source.get("preset") if source.get("preset") in PRESETS[task] else None
    preset = given.get("preset") or inherited or next(iter(PRESETS[task]))
    if preset not in PRESETS[task]:
        raise UserError(f"--preset={preset} is unknown{suggest(preset, PRESETS[task])}")
    if brought := source and [name for name in given if name.startswith("tokenizer.") and name not in _OF_TOKENIZING]:
        raise UserError(f"--init={given['init']} brings its own tokenizer; leave --{brought[0]} out")
    model = {name: value for name, value in source.items() if name.startswith("model.") and name not in _OF_THE_RUN}
    layers = (model, PRESETS[task][preset]) if "preset" in given else (PRESETS[task][preset], model)
    return {**layers[0], **layers[1], **given, "task.name": task, "preset": preset}


def settle(run: Run, decided: Mapping[str, Any], sizes: Mapping[str, int], platform: str) -> Run:
    """The run with what only the data and the machine can tell: sizes of the model (vocab, classes), and bfloat16 on accelerators."""
    found = {"model.dtype": "float32" if platform == "cpu" else "bfloat16", **{f"model.{name}": size for name, size in sizes.items()}}
    run = flags.build(Run, {**flags.flatten(run), **{name: value for name, value in found.items() if name not in decided}})
    for name, size in sizes.items():
        if getattr(run.model, name) < size:
            raise UserError(f"--model.{name}={getattr(run.model, name)} is less than the {size} of the data; leave the flag out")
    return run


def usage(argv: Sequence[str]) -> str:
    """The text of `--help`, with the values that the other flags lead to."""
    values = _fresh_values(_parse([word for word in argv if word not in ("--help", "-h")]), {})
    later = {"model.vocab": "the tokenizer's", "model.classes": "the data's", "model.dtype": "by device"}
    return flags.explain(USAGE, FLAGS[values["task.name"]], ALIASES, later | values)
