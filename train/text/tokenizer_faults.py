"""Which field of a tokenizer.json the tokenizers library refuses: its errors name a column alone."""

import json
from collections.abc import Callable, Iterator, Mapping

# What stands for fields of a model that must be there.
_REQUIRED = {"unk_token": "a", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}


def field(values: Mapping[str, object], is_read: Callable[[str], bool]) -> str:
    """The first field at fault, such as model.dropout; "" where no single one is.

    is_read: whether the library reads a text
    """
    return next((name for name, mended in _mended(values) if is_read(json.dumps(mended))), "")


def _mended(values: Mapping[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    """The names of fields, each with the file without it, or with another value where it must be there."""
    for name in sorted(values.keys() - {"model"}):
        yield name, _without(values, name)
    model = values.get("model")
    if not isinstance(model, dict):
        return
    for name in sorted(model.keys() - {"vocab", "merges"}):
        yield f"model.{name}", {**values, "model": _without(model, name)}
        if name in _REQUIRED:
            yield f"model.{name}", {**values, "model": {**model, name: _REQUIRED[name]}}
    if "merges" in model:
        model = {**model, "merges": []}
        yield "model.merges", {**values, "model": model}
    if "vocab" in model:
        unknown = model.get("unk_token") or "a"
        vocab = {unknown: 0} if isinstance(model["vocab"], dict) else [[unknown, 0.0]]
        yield "model.vocab", {**values, "added_tokens": [], "model": {**_without(model, "unk_id"), "vocab": vocab}}


def _without(values: Mapping[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in values.items() if key != name}
