"""Which field of a tokenizer.json the tokenizers library refuses: its errors name a column alone."""

import json
from collections.abc import Callable, Iterator
from typing import Any


def field(values: dict[str, Any], is_read: Callable[[str], bool]) -> str:
    """The first field without which the file is read, such as model.dropout; "" where no single one is at fault.

    is_read: whether the library reads a text
    """
    return next((name for name, mended in _mended(values) if is_read(json.dumps(mended))), "")


def _mended(values: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The names of fields, each with the file without it."""
    for name in values.keys() - {"model"}:
        yield name, _without(values, name)
    if not isinstance(model := values.get("model"), dict):
        return
    for name in model.keys() - {"vocab", "merges"}:
        yield f"model.{name}", values | {"model": _without(model, name)}
    if "merges" in model:
        model = model | {"merges": []}
        yield "model.merges", values | {"model": model}
    if "vocab" in model:
        unknown = model.get("unk_token") or "a"
        vocab = {unknown: 0} if isinstance(model["vocab"], dict) else [[unknown, 0.0]]
        yield "model.vocab", values | {"added_tokens": [], "model": _without(model, "unk_id") | {"vocab": vocab}}


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}
