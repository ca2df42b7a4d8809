"""From the command line to a run: defaults, a preset, a saved run and flags, each layer over the one before."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfm.config.model import COMPUTE, Config
from tfm.options.dotted import flatten
from tfm.options.errors import suggest
from train import UserError
from train.settings import flags
from train.settings.schema import Run
from train.settings.text import BY_HASH
from train.tasks import phases
from train.tasks.mlm.options import Mlm
from train.tasks.presets import PRESETS
from train.tasks.table import TASKS, AnyRun

USAGE = """usage: python -m train.main --task=NAME [--preset=NAME] [--data=SOURCE] [--section.field=value ...]
Flags and what they are now; --help=model.mixer explains all flags whose names begin so, and names the variants:"""

ALIASES = {
    "data": "data.source",
    "eval-data": "data.eval",
    "features": "model.head.features",
    "teacher": "teacher.folder",
}

# What may differ between a saved run and its resumption; evaluations stay comparable, for one of them is the best.
MAY_CHANGE = (
    *("steps", "stop_at", "resume", "out", "log.", "eval.every", "eval.final", "eval.patience"),
    *("mesh.", "cpu.", "distributed.", "checkpoint."),
)

# What a saved run says only of its first start.
_OF_THE_START = ("stop_at", "resume", "distributed.")

# Fields that --init inherits for the same task alone.
_OF_TOKENS = ("task.size", "task.query_length", "task.cut_queries", "task.skip_punctuation")
_OF_THE_TASK = ("model.head.pool", "model.head.features", "task.queries", "task.layers", *_OF_TOKENS)

# A field that --init inherits for every task that has it.
_START = "task.start"

# What the section `data` says of training alone.
_OF_TRAINING = tuple(f"data.{name}" for name in "source eval folds fold mixture temperature max_epochs shuffle".split())

# Fields of a tokenizer that are no part of it.
_OF_TOKENIZING = ("tokenizer.dropout", "tokenizer.sampling", "tokenizer.draws")

# Sections and flags that `--help` lists without their explanations.
_LISTED = (
    *("cpu.", "distributed.", "teacher.", "init_head", "init_embeddings", "freeze_", "log.layers"),
    *("checkpoint.verify", "checkpoint.folder"),
    *("task.length_", "task.early_stopping", "task.source_language", "task.target_language", "data.control_tokens"),
    *("data.temperature", "data.max_epochs", "data.shuffle", "data.mixture", "data.fold", "model.pad_"),
    *("tokenizer.sentinels", "tokenizer.alphabet", "tokenizer.sampling", "tokenizer.draws", "batch.shapes"),
    *("batch.multiple", "mesh.expert", "model.init_std", "model.norm_eps", "model.ffn_dropout"),
    *("optim.moment_dtype", "optim.layer_decay", "optim.nesterov", "optim.cooldown", "optim.final"),
    *("optim.cautious_", "optim.eps", "optim.base_"),
    *("task.both_ways", "task.sizes", "task.query_prompt", "task.passage_prompt", "task.candidates", "task.scale"),
    *("task.graded", "task.activation", "task.quantize"),
)

# Parts of which `--help` lists what somebody has chosen, as of kinds of layers.
PARTS = ("model.images.", "model.encoder.", "teacher.", "distributed.", "model.head.quer")

# Flags of the processor of pictures, or of sounds.
_OF_PROCESSING = ("task.pixels.", "task.colours", "task.grey", "task.resample", "task.sound.")

# Layers up to which a GPU has a block for each (M56: 0.77 of a step of 12); more take long to compile.
UNSCANNED = 48

# What the data and the device decide, where no flag does, in `--help`.
_DECIDED_LATER = {"model.vocab": "the tokenizer's", "model.classes": "the data's", "model.dtype": "by device"}

# A run folder -> its dotted values.
ReadResumed = Callable[[str], Mapping[str, Any]]

# A run folder, and an adapter of it or "" -> its dotted values, those of --tune as the adapter asks.
ReadFolder = Callable[[str, str], Mapping[str, Any]]


def resolve(argv: Sequence[str], read_resumed: ReadResumed, read_folder: ReadFolder) -> tuple[Run, set[str]]:
    """Command line -> the run, and the dotted names that a preset, a saved run or a flag decided.

    `read_resumed` gets the folder of `--out`, which may be empty, and returns the values of the run to resume;
    `read_folder` those of another run and its adapter. Raises UserError for whatever does not fit.
    """
    recipe, texts = _read_recipe(flags.parse(argv, ALIASES))
    if _begins(texts):
        texts = {**texts, "resume": flags.Text("resume", "false")}
    if _read(texts, "resume", False):
        layers = _resumed_layers(texts, read_resumed(_read(texts, "out", "")))
    else:
        folder = _read(texts, "init", "")
        adapter = flags.read("adapter", texts["adapter"], str | None) if "adapter" in texts else None
        if adapter and not folder:
            raise UserError(f"--adapter={adapter} updates a model that is there; name it with --init=FOLDER")
        source = read_folder(folder, adapter or "") if folder else {}
        layers = _fresh_layers(texts, source if adapter else _without_tune(source))
    run = _build(layers)
    try:
        run = run if "steps" in texts else phases.with_steps(run)
        phases.step_ranges(run)
    except UserError as error:
        raise UserError(f"{recipe or '--phases'}: {error}") from error
    return run, set().union(*layers)


def _read_recipe(texts: Mapping[str, flags.Text]) -> tuple[str, dict[str, Any]]:
    """The file that --phases names, or "", and the command line with its phases in the place of the name."""
    text = texts["phases"].text if "phases" in texts else None
    if text is None or text.isdecimal():
        return "", dict(texts)
    return text, {name: value for name, value in texts.items() if name != "phases"} | phases.read_recipe(text)


def infer_task(argv: Sequence[str], read_folder: ReadFolder) -> list[str]:
    """The command line with the task that preset or `--init` imply, where it names none. Raises UserError for an
    unknown preset."""
    texts = flags.parse(argv, ALIASES)
    if "task" in texts:
        return list(argv)
    preset, folder = _read(texts, "preset", ""), _read(texts, "init", "")
    implied = next((task for task, presets in PRESETS.items() if preset in presets), None)
    if preset and not implied:
        names = [name for presets in PRESETS.values() for name in presets]
        raise UserError(f"--preset={preset} is unknown{suggest(preset, names)}")
    implied = read_folder(folder, "")["task"] if folder and not implied else implied
    return [*argv, f"--task={implied or Mlm.name}"]


def _begins(texts: Mapping[str, flags.Text]) -> bool:
    """Whether --resume stands in the first start of a command that is given again after each end: it says what to
    train, and where, and no run is there yet."""
    folder = _read(texts, "out", "")
    says_what = not {"task", "preset"}.isdisjoint(texts)
    return _read(texts, "resume", False) and bool(folder) and says_what and not Path(folder, "run.json").exists()


def _read(texts: Mapping[str, flags.Text], name: str, default: Any) -> Any:
    """A value of the command line."""
    return flags.read(name, texts[name], type(default)) if name in texts else default


def _build(layers: Sequence[Mapping[str, Any]]) -> Run:
    """The run of these layers."""
    return flags.build(AnyRun, *layers, aliases=ALIASES)


def _resumed_layers(texts: Mapping[str, Any], saved: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The saved run and the flags, which may change some of it."""
    saved = {name: value for name, value in saved.items() if not name.startswith(_OF_THE_START)}
    before, after = flatten(_build([saved])), flatten(_build([saved, texts]))
    for name, value in after.items():
        moved = name in BY_HASH and all(path not in ("", "builtin") for path in (value, before.get(name)))
        if value != before.get(name) and not (moved or name.startswith(MAY_CHANGE)):
            flag, was = name.replace("_", "-"), flags.show(before.get(name))
            raise UserError(
                f"--{flag}={flags.show(value)} differs from {was} in the run to resume; "
                "leave it out, or start a new run"
            )
    return [saved, texts]


def _fresh_layers(texts: Mapping[str, Any], source: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Preset and flags; the model is that of the run that `--init` names, unless a preset says otherwise."""
    task = _read(texts, "task", Mlm.name)
    if task not in TASKS:
        raise UserError(f"--task={task} is unknown{suggest(task, TASKS)}")
    inherited = source.get("preset") if source.get("preset") in PRESETS[task] else None
    preset = _read(texts, "preset", "") or inherited or _nearest_preset(task, source)
    if preset not in PRESETS[task]:
        raise UserError(f"--preset={preset} is unknown{suggest(preset, PRESETS[task])}")
    trained = [name for name in texts if name.startswith("tokenizer.") and name not in _OF_TOKENIZING]
    origin = texts.get("init" if source else "teacher.folder")
    if origin and origin.text and trained:
        raise UserError(f"--{origin.flag}={origin.text} brings its own tokenizer; leave --{texts[trained[0]].flag} out")
    processing = [name for name in texts if name.startswith(_OF_PROCESSING)]
    if source and processing and origin and _has_processor(origin.text):
        flag = texts[processing[0]].flag
        kind = "sounds" if processing[0].startswith("task.sound.") else "pictures"
        raise UserError(f"--{origin.flag}={origin.text} brings its own processor of {kind}; leave --{flag} out")
    chosen, of_source = {"task": task, **PRESETS[task][preset]}, _inherited(task, source)
    of_source |= {name: value for name, value in source.items() if name.partition(".")[0] == "tune"}
    layers = [of_source, chosen] if "preset" in texts else [chosen, of_source]
    return [{"task": task}, *layers, texts, {"preset": preset}]


def _has_processor(folder: str) -> bool:
    from train.data import processors  # not needed for a help text

    return processors.has_file(Path(folder))


def _without_tune(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a run without what of its model was trained, which is another run's own choice."""
    return {name: value for name, value in values.items() if name.partition(".")[0] != "tune"}


def _inherited(task: str, source: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a saved run that its weights have decided."""
    own = {"model.classes", *(f"model.{name}" for name in COMPUTE), *_OF_THE_TASK}
    inherits = {name: source[name] for name in (_START,) if name in source and hasattr(TASKS[task].options, "start")}
    values = {name: value for name, value in source.items() if name.startswith("model.") and name not in own}
    before = TASKS.get(source.get("task", ""))
    if before is not None and before.options.is_causal and not TASKS[task].options.is_causal:
        values["model.head.causal"] = True
    of_the_task = {name: source[name] for name in _OF_THE_TASK if name in source}
    return values | inherits | (of_the_task if source.get("task") == task else {})


def _nearest_preset(task: str, source: Mapping[str, Any]) -> str:
    """The preset of a task for its recipe: of those that read what the source reads, the one whose width is nearest;
    the first without a source."""
    if not (width := source.get("model.width")):
        return next(iter(PRESETS[task]))
    inputs = lambda values: (values.get("model.input") or "tokens", values.get("model.encoder.input"))
    similar = {name: values for name, values in PRESETS[task].items() if inputs(values) == inputs(source)}
    widths = {name: values["model.width"] for name, values in (similar or PRESETS[task]).items()}
    return min(widths, key=lambda name: abs(widths[name] - width))


def split_data_flags(argv: Sequence[str]) -> tuple[dict[str, flags.Text], list[str]]:
    """The flags --data.* that say how a saved run reads a file, by dotted name, and the rest of the command line.

    Raises UserError for those that choose rows to train on.
    """
    named, rest = flags.split_argv(argv, ("data.",))
    texts = flags.parse(named)
    for name, (flag, _) in texts.items():
        if name in _OF_TRAINING:
            raise UserError(f"--{flag} chooses what a run trains on; name a file to read with --data or --file")
    return texts, rest


def fill_from_data(
    run: Run, explicit: set[str], sizes: Mapping[str, int], platform: str, has_bfloat16: bool = True
) -> Run:
    """The run with what the data and the device decide: sizes of the model, bfloat16 on accelerators, or float16 on
    those without it, and on a GPU a block for each layer.

    A size with a dot in its name is of another section. `explicit` are the names that are decided.

    Raises UserError where a size is too small for the data.
    """
    half = "bfloat16" if has_bfloat16 else "float16"
    values: dict[str, Any] = {"model.dtype": "float32" if platform == "cpu" else half}
    if platform == "gpu" and _stores_activations(run.model) and run.model.layers <= UNSCANNED:
        values["model.scan"] = False
    needed = {name if "." in name else f"model.{name}": size for name, size in sizes.items()}
    values |= needed
    run = flags.build(AnyRun, flatten(run), {name: value for name, value in values.items() if name not in explicit})
    chosen = flatten(run)
    for name, size in needed.items():
        if chosen[name] < size:
            raise UserError(f"--{name}={chosen[name]} is less than the {size} of the data; leave the flag out")
    return run


def _stores_activations(model: Config) -> bool:
    """Whether the backward pass recomputes nothing. Otherwise it would keep a copy of the kernels of each layer that is
    not scanned."""
    return model.remat == "none" and not getattr(model.residual, "recomputes", False)


def help_text(argv: Sequence[str]) -> str | None:
    """The text of `--help`, with the values that the other flags lead to; None where nobody asks for it."""
    asked = [word for word in argv if word in ("-h", "--help") or word.startswith("--help=")]
    if not asked:
        return None
    _, texts = _read_recipe(flags.parse([word for word in argv if word not in asked], ALIASES))
    layers = _fresh_layers(texts, {})
    later = {name: value for name, value in _DECIDED_LATER.items() if name not in set().union(*layers)}
    every_flag = [
        # What the data decide is no choice of the user: it is listed and not explained.
        flag._replace(value=later[flag.name], is_set=flag.name == "model.dtype") if flag.name in later else flag
        for flag in flags.flags_of(_build(layers))
    ]
    section = asked[0].partition("=")[2].replace("-", "_")
    if section:
        chosen = [flag for flag in every_flag if f"{flag.name}.".startswith(f"{section}.")]
        if not chosen:
            raise UserError(f"--help={section} is unknown{suggest(section, [flag.name for flag in every_flag])}")
        return flags.format_help(USAGE, chosen, ALIASES, show_variants=True)
    explained = [
        flag for flag in every_flag if flag.is_set and flag.name.count(".") < 2 and not flag.name.startswith(_LISTED)
    ]
    brief = [flag for flag in every_flag if flag not in explained and not _is_default_of_part(flag)]
    return flags.format_help(USAGE, explained, ALIASES, brief)


def _is_default_of_part(flag: flags.Flag) -> bool:
    """Whether this is of a kind of layers, or of another part, and nobody has chosen it; or of a phase, which
    `--help=phases` shows."""
    if flag.name.startswith("phases."):
        return True
    is_part = flag.name.startswith(PARTS) or any(word.isdigit() for word in flag.name.split("."))
    return flag.value == flag.default and is_part and flag.name not in ALIASES.values()
