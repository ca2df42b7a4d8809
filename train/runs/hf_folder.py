"""Hugging Face folders where a run folder is asked for: what a run of this trainer would say of the model in one."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from train import UserError

# The task of each kind of head; the rest can be started from, but have no task that measures them.
_TASKS = {"mlm": "mlm", "pretrain": "mlm", "lm": "lm", "seq2seq": "translate", "classify": "classify"}


# What transformers calls the kinds of labels.
PROBLEMS = {"single": "single_label_classification", "multi": "multi_label_classification", "regression": "regression"}


def here(folder: str | Path) -> bool:
    """Whether a folder is not of a run but of a model that transformers saved."""
    return (Path(folder) / "config.json").is_file() and not (Path(folder) / "run.json").is_file()


def values(folder: str | Path) -> dict[str, Any]:
    """The dotted values of a run that would have made the model. Raises UserError where it cannot be read."""
    import dataclasses

    from train.settings import flags
    from train.settings.schema import Run

    with _plainly(folder):
        opened = _open(folder)
    model, kind = opened.config, opened.head.kind
    decided = {f"model.{field.name}": getattr(model, field.name) for field in dataclasses.fields(model)}
    decided |= {
        "task.name": _TASKS.get(kind, "mlm"),
        "preset": "",
        "batch.length": min(model.length, 128 if kind == "mlm" else 512),
        "batch.size": 8,
    }
    if kind == "classify":
        decided["task.kind"] = _kind(opened.fields)
    if kind == "pretrain":
        decided["task.nsp"] = True
    if kind == "seq2seq":
        decided["task.start"] = _start(folder)
    if kind == "lm":
        decided["task.windows"] = True  # a text needs no mark before it
    return flags.flatten(flags.build(Run, decided)) | {"out": str(folder)}


def _kind(fields: Mapping[str, Any]) -> str:
    """What the classes of a classifier are."""
    usual = "regression" if len(fields.get("id2label") or "ab") == 1 else "single"
    return next((kind for kind, problem in PROBLEMS.items() if problem == fields.get("problem_type")), usual)


def _start(folder: str | Path) -> str:
    """The token that a translation begins with: by default, padding."""
    fields = _fields(folder)
    return tokenizer(folder).id_to_token(fields.get("decoder_start_token_id", fields.get("pad_token_id", 0)))


def tokenizer(folder: str | Path):
    """The tokenizer in the folder. Raises UserError where there is none that can be read."""
    import json

    from train.text import tokenizer as tokenize

    path = Path(folder)
    if not any((path / name).exists() for name in ("tokenizer.json", "vocab.txt")):
        how = "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        raise UserError(f"{folder} has no tokenizer.json; make it once, where transformers is installed, with {how}")
    options = path / "tokenizer_config.json"
    lower = json.loads(options.read_text()).get("do_lower_case", True) if options.exists() else True
    return tokenize.read(path, bool(lower))


def facts(folder: str | Path) -> dict[str, Any]:
    """What run.json would say of the data: the names of the classes."""
    labels = _fields(folder).get("id2label") or {}
    return {"classes": [labels[name] for name in sorted(labels, key=int)]}


def params(folder: str | Path, mesh, say: Callable[[str], None]) -> Any:
    """The parameters, on a mesh. Raises UserError where they cannot be read; says what changes nothing here."""
    import tfm

    with _plainly(folder), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UserWarning)
        read = tfm.from_hf(folder, mesh)[1]
    for warning in found:
        say(f"{folder}: {warning.message}")
    return read


def _fields(folder: str | Path) -> dict[str, Any]:
    from tfm.hf.folder import read_config

    return read_config(Path(folder))


def _open(folder: str | Path):
    from tfm.hf.folder import open_folder

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # they are said when the weights are read
        return open_folder(folder)


@contextlib.contextmanager
def _plainly(folder: str | Path) -> Iterator[None]:
    """The library's errors about a folder, as bad input."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        raise UserError(text if str(folder) in text else f"{folder}: {text}") from error
