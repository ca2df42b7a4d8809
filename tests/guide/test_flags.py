"""Flags that the pages name exist: those of commands that they show, and those of tables and prose."""

import contextlib
import dataclasses
import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from guide import pages

from tfm.options.choices import alternatives, type_hints
from tfm.options.dotted import is_list
from train import UserError
from train.__main__ import command_paths
from train.settings import flags
from train.tasks import resolve
from train.tasks.presets import PRESETS
from train.tasks.table import TASKS, AnyRun

EVERYWHERE = [*pages.PAGES, *pages.NOTEBOOKS]
COMMANDS = sorted({(pages.name_of(path), command) for path in EVERYWHERE for command in pages.commands(path)})
COMMANDS = [(page, command) for page, command in COMMANDS if "--task=order" not in command]  # test_followed_pages.py

# Flags that may be repeated, and list values of others.
REPEATED = {"train.compare": ("--vary=", "--run=", "--tune=")}

# Flags of other programs, and a wrong one in the page about errors.
FOREIGN = {
    *("gpus-per-node", "nodes", "ntasks-per-node", "signal", "requeue", "array", "kill-on-bad-exit"),  # sbatch, srun
    *("cluster", "workload", "tpu-type", "num-slices", "max-restarts", "command", "worker"),  # xpk, gcloud
    *("no-deps", "no-cache-dir", "logdir", "local-dir"),  # pip, tensorboard, huggingface-cli
    "output_dir",  # scripts of transformers
    *("xla_cpu_experimental_ynn_fusion_type", "xla_force_host_platform_device_count"),
    *("build-arg", "rm", "gpus", "privileged", "net", "install", "stop-timeout"),  # docker, wsl
    *("only", "inputs", "smoke", "turns"),  # .ci/accelerator
    "optim.rat",
}


def options_of(module) -> type | None:
    """The class of a command's own flags: `PredictOptions` of train.predict; None where it has none."""
    module = sys.modules[module.main.__module__]  # of a tool in train/lab/
    command = module.__name__.removesuffix(".command").rpartition(".")[2]
    return getattr(module, f"{command.capitalize()}Options", getattr(module, "Options", None))


def options_fields(cls: type | None) -> tuple[dataclasses.Field, ...]:
    """The fields of the class of a command's flags."""
    return dataclasses.fields(cls) if cls else ()


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_flags_of_commands_exist(page, command):
    name, *words = shlex.split(re.sub(r"[\[\]|]", " ", command))
    module = importlib.import_module(name)
    if not hasattr(module, "main"):
        module = importlib.import_module(f"{name}.__main__")
    left_out = (*REPEATED.get(name, ()), "--help")
    words = [word for word in words if word.startswith("--") and not word.startswith(left_out)]
    options_class = options_of(module)
    options = [field.name for field in options_fields(options_class)]
    sections = [f"{field.name}." for field in options_fields(options_class) if dataclasses.is_dataclass(field.default)]
    own, shared = flags.split_argv(words, [*options, *sections])
    if options:
        _unknown(lambda: flags.build(options_class, flags.parse(own, getattr(module, "ALIASES", None))))
    presets = [word.partition("=")[2] for word in words if word.startswith("--preset=")]
    assert {*presets} <= {name for of_task in PRESETS.values() for name in of_task}
    passes_on = not options or name in (
        "train.bench",
        "train.check",
        "train.compare",
        "train.embed",
        "train.evaluate",
        "train.glue",
        "train.inspect",
        "train.mine",
        "train.plan",
        "train.predict",
        "train.record",
    )
    assert passes_on or not shared, f"{shared} are no flags of {name}"
    if passes_on and shared:
        words = resolve.infer_task(shared, lambda *_: {"task": "mlm"})
        _unknown(lambda: resolve.resolve(words, lambda *_: {"task": "mlm"}, lambda *_: {}))


def _unknown(parse) -> None:
    """Fails where a flag is unknown; values may be placeholders."""
    with contextlib.suppress(UserError, ValueError):
        parse()
        return
    with pytest.raises((UserError, ValueError)) as error:
        parse()
    assert "unknown" not in str(error.value)


def names(cls: type, prefix: str = "", outer: tuple[type, ...] = ()) -> Iterator[str]:
    """The flags of a dataclass; `N` stands for a place in a list."""
    for field, hint in type_hints(cls).items():
        name = f"{prefix}{field.replace('_', '-')}"
        yield name
        for inner, start in _inside(hint, name):
            if inner not in outer:
                yield from names(inner, start, (*outer, cls))


def _inside(hint: Any, name: str) -> Iterator[tuple[type, str]]:
    """The dataclasses of a field, and how their flags begin."""
    if is_list(hint):
        yield from ((hint.__args__[0], start) for start in (f"{name}.", f"{name}.N."))
    members = [*alternatives(hint).values(), *getattr(hint, "__args__", ()), hint]
    yield from ((cls, f"{name}.") for cls in members if isinstance(cls, type) and dataclasses.is_dataclass(cls))


def all_flags() -> set[str]:
    """The flags of all commands."""
    sections = [*names(AnyRun), *(name for task in TASKS.values() for name in names(task.options, "task."))]
    modules = [
        f"train.{name}" + (".__main__" if path.name == "__main__.py" else "") for name, path in command_paths().items()
    ]
    modules.append("train.lab.timing.serving")
    options = [options_of(importlib.import_module(module)) for module in modules]
    own = [name for cls in options if cls for name in names(cls)]
    repeated = {flag.strip("-=") for flag in sum(REPEATED.values(), ())}
    return {*sections, *own, *repeated, *resolve.ALIASES, "help"}


def test_flags_of_tables_and_prose_exist():
    flags_of_commands = all_flags()
    named = {name: pages.name_of(path) for path in EVERYWHERE for name in pages.flags(path)}
    missing = {
        name: page for name, page in named.items() if re.sub(r"\.\d+(?=\.|$)", ".N", name) not in flags_of_commands
    }
    assert missing.keys() == FOREIGN, missing
