"""From the command line to a run: defaults, a preset, a saved run and flags, each layer over the one before."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfm.config.model import suggest
from train import UserError
from train.settings import flags
from train.settings.presets import PRESETS
from train.settings.schema import Run
from train.settings.tasks import TASKS, Mlm

USAGE = """usage: python -m train.main --task=NAME [--preset=NAME] [--data=SOURCE] [--section.field=value ...]

SOURCE is builtin, a path or glob of .txt, .jsonl, .tsv or .csv files, each optionally .gz, or tfds:NAME[:SPLIT]. Flags and what they
are now:"""

ALIASES = {"task": "task.name", "data": "data.source", "eval-data": "data.eval"}

# What may differ between a saved run and its resumption.
MAY_CHANGE = ("steps", "stop_at", "resume", "out", "log.", "eval.", "mesh.", "cpu.", "distributed.", "checkpoint.")

# What of a model is a choice of the run, and not handed on with its weights.
_OF_THE_RUN = (
    "model.dtype",
    "model.param_dtype",
    "model.dropout",
    "model.scan",
    "model.remat",
    "model.classes",
    "model.pool",
)

# What of a task belongs to the weights.
_OF_THE_WEIGHTS = ("task.start",)

# What of a tokenizer is no part of it.
_OF_TOKENIZING = ("tokenizer.dropout", "tokenizer.draws")

# Fields of the model that few change by hand.
_FAMILIES = """encoder_layers token_types embed_norm embed_scale norm_eps rotary_base vocab_multiple shared head_size qk_norm window
global_every embed_width embed_map pool_activation pool_norm head_bias attn_dropout first_norm rotary_base_near rotary_share
rotary_stretch rotary_short rotary_long relative relative_shared relative_norm buckets bucket_distance output_bias
output_scale"""

# The kernel is a choice of the training, not of the model that comes out of it: --attention.kernel alone.
FLAGS = {
    task: {name: flag for name, flag in flags.flags_of(Run, {"task.name": task}).items() if name != "model.kernel"}
    for task in TASKS
}


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


def with_task(argv: Sequence[str], read) -> list[str]:
    """The command line with the task that preset or `--init` imply, where it names none."""
    given = _parse(argv)
    if "task.name" in given:
        return list(argv)
    implied = next((task for task, presets in PRESETS.items() if given.get("preset") in presets), None)
    implied = read(given["init"])["task.name"] if given.get("init") and not implied else implied
    return [*argv, f"--task={implied or Mlm.name}"]


def _parse(argv: Sequence[str]) -> dict[str, Any]:
    """The flags that are given, of whatever task."""
    everything = {name: flag for known in reversed(FLAGS.values()) for name, flag in known.items()}
    return flags.parse(argv, everything, ALIASES)


def _resumed_values(given: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """The saved run, with what may change changed."""
    before = {
        name: value for name, value in saved.items() if not name.startswith(("stop_at", "resume", "distributed."))
    }
    for name, value in given.items():
        if value != before.get(name) and not name.startswith(MAY_CHANGE):
            flag, was = name.replace("_", "-"), before.get(name)
            raise UserError(
                f"--{flag}={value} differs from {was} in the run to resume; leave it out, or start a new run"
            )
    return {**before, **given}


def _fresh_values(given: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    """Preset and flags; the model is that of the run that `--init` names, unless a preset says otherwise."""
    task = given.get("task.name", Mlm.name)
    if task not in TASKS:
        raise UserError(f"--task={task} is unknown{suggest(task, TASKS)}")
    if foreign := [name for name in given if name not in FLAGS[task]]:
        raise UserError(f"--{foreign[0].replace('_', '-')} belongs to another task than --task={task}; leave it out")
    inherited = source.get("preset") if source.get("preset") in PRESETS[task] else None
    preset = given.get("preset") or inherited or _nearest(task, source.get("model.width"))
    if preset not in PRESETS[task]:
        raise UserError(f"--preset={preset} is unknown{suggest(preset, PRESETS[task])}")
    if brought := source and [name for name in given if name.startswith("tokenizer.") and name not in _OF_TOKENIZING]:
        raise UserError(f"--init={given['init']} brings its own tokenizer; leave --{brought[0]} out")
    own = _OF_THE_RUN if source.get("task.name") != task else [name for name in _OF_THE_RUN if name != "model.pool"]
    model = {name: value for name, value in source.items() if name.startswith("model.") and name not in own}
    model |= {name: value for name, value in source.items() if name in _OF_THE_WEIGHTS and name in FLAGS[task]}
    layers = (model, PRESETS[task][preset]) if "preset" in given else (PRESETS[task][preset], model)
    return {**layers[0], **layers[1], **given, "task.name": task, "preset": preset}


def _nearest(task: str, width: int | None) -> str:
    """The preset of a task whose width is nearest, for its recipe; the first where there is no width to compare with."""
    widths = {name: values["model.width"] for name, values in PRESETS[task].items()}
    return min(widths, key=lambda name: abs(widths[name] - width) if width else 0)


def settle(run: Run, decided: Mapping[str, Any], sizes: Mapping[str, int], platform: str) -> Run:
    """The run with what only the data and the machine can tell: sizes of the model (vocab, classes), and bfloat16 on accelerators."""
    found = {
        "model.dtype": "float32" if platform == "cpu" else "bfloat16",
        **{f"model.{name}": size for name, size in sizes.items()},
    }
    run = flags.build(
        Run, {**flags.flatten(run), **{name: value for name, value in found.items() if name not in decided}}
    )
    for name, size in sizes.items():
        if getattr(run.model, name) < size:
            raise UserError(
                f"--model.{name}={getattr(run.model, name)} is less than the {size} of the data; leave the flag out"
            )
    return run


def usage(argv: Sequence[str]) -> str:
    """The text of `--help`, with the values that the other flags lead to."""
    values = _fresh_values(_parse([word for word in argv if word not in ("--help", "-h")]), {})
    later = {"model.vocab": "the tokenizer's", "model.classes": "the data's", "model.dtype": "by device"}
    others = (
        "What sets other families of models apart (tfm.Config explains it):",
        [f"model.{name}" for name in _FAMILIES.split()],
    )
    return flags.explain(USAGE, FLAGS[values["task.name"]], ALIASES, later | values, others)
