"""Adapter folders of PEFT that a run starts from, over the weights of --init."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tfm.config.model import Config
from tfm.options.dotted import override
from train.settings.gate import user_errors

if TYPE_CHECKING:
    from tfm.params import PyTree


def tune_values(path: str, source: Mapping[str, object]) -> dict[str, object]:
    """The dotted values of --tune that an adapter asks for; `source` are those of the run or folder it is for."""
    from tfm.hf.adapter import read_adapter, targets_of

    model = {name.removeprefix("model."): value for name, value in source.items() if name.startswith("model.")}
    with user_errors("--adapter"):
        adapter = read_adapter(path)
        targets = targets_of(adapter, override(Config(), model))
    options = adapter.options
    return {
        "tune": "lora",
        "tune.rank": options["rank"],
        "tune.alpha": options["scale"] * options["rank"],
        "tune.dropout": options["dropout"],
        "tune.targets": ",".join(sorted(targets)),
    }


def load(path: str, model: Config, params: "PyTree") -> "PyTree":
    """Parameters with the updates of an adapter, and its heads."""
    from tfm.hf.adapter import load_adapter, read_adapter

    with user_errors("--adapter"):
        return load_adapter(read_adapter(path), model, params)
