"""modules.json: the modules of a folder of sentence-transformers, in their order."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tfm.options.choices import check_object
from tfm.options.json_text import parse, read_text
from train.text.vector_layers import LAYERS, refuse_unknown

MODULES = "modules.json"

# Where the library's classes stand, in all of its versions.
_PLACES = "models", r"base\.modules", r"sentence_transformer\.modules", r"multi_vector_encoder\.modules"
_TYPE = re.compile(rf"sentence_transformers\.(?:{'|'.join(_PLACES)})\.(?:\w+\.)*(\w+)")

# The modules of vectors of texts.
_POOLED = ("Transformer", "Pooling", *LAYERS)


class ModuleEntry(NamedTuple):
    """A line of modules.json: the class of a module, and its folder."""

    kind: str
    folder: Path


def read_entries(root: Path) -> list[ModuleEntry]:
    """The modules in their order. Raises ValueError for those that no vector of a text has."""
    entries = read_modules(root, _POOLED)
    kinds = [entry.kind for entry in entries]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - set(LAYERS):
        raise ValueError(
            f"{root / MODULES} names {', '.join(kinds) or 'no module'}; a Transformer and a Pooling must stand first, "
            "each once"
        )
    return entries


def read_modules(root: Path, kinds: Sequence[str]) -> list[ModuleEntry]:
    """The modules in their order. Raises ValueError for others than these kinds."""
    path = root / MODULES
    values = parse(read_text(path), str(path))
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ValueError(f"{path} must be a list of modules; download the folder again")
    entries: list[ModuleEntry] = []
    for value in values:
        refuse_unknown(path, value, ("idx", "name", "path", "type", "kwargs"))
        fields = check_object(f"{path}: ", value, {"path": str, "type": str, "kwargs": list[str]})
        if missing := [name for name in ("path", "type") if name not in fields]:
            raise ValueError(f"{path}: module {len(entries)} has no {missing[0]}; download the folder again")
        place, kind = fields["path"], fields["type"]
        match = _TYPE.fullmatch(kind)
        if match is None or match[1] not in kinds or fields.get("kwargs"):
            fault = f"{path}: the module of type={kind!r} is not understood"
            raise ValueError(f"{fault}; known are {', '.join(kinds)} of sentence-transformers")
        if Path(place).is_absolute() or ".." in Path(place).parts:
            raise ValueError(f"{path}: path={place} leaves the folder; correct it")
        if place in ("", ".") and match[1] != "Transformer":
            raise ValueError(f"{path}: path={place!r} of {match[1]} is the folder of the model; correct it")
        entries.append(ModuleEntry(match[1], root / place))
    return entries
