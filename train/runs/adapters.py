"""Adapter folders of PEFT that a run starts from, over the weights of --init."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from tfm.config.dotted import override
from tfm.config.model import Config
from train import UserError


def tune_values(path: str, source: Mapping[str, Any]) -> dict[str, Any]:
    """The dotted values of --tune that an adapter asks for; `source` are those of the run or folder it is for."""
    from tfm.hf.adapter import read_adapter, targets_of

    model = {name.removeprefix("model."): value for name, value in source.items() if name.startswith("model.")}
    with _user_errors():
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


def load(path: str, model: Config, params: Any) -> Any:
    """Parameters with the updates of an adapter, and its heads."""
    from tfm.hf.adapter import load_adapter, read_adapter

    with _user_errors():
        return load_adapter(read_adapter(path), model, params)


@contextlib.contextmanager
def _user_errors() -> Iterator[None]:
    """Turns the library's errors about a folder into UserError."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"--adapter: {error}") from error
