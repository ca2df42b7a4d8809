"""modules.json: the modules of a folder of sentence-transformers, in their order."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PureWindowsPath
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
            f"{root / MODULES} has {_named(kinds)}; a Transformer and a Pooling must stand first, each once"
        )
    return entries


def _named(kinds: Sequence[str]) -> str:
    return f"modules of type {', '.join(kinds)}" if kinds else "no module"


def read_modules(root: Path, kinds: Sequence[str]) -> list[ModuleEntry]:
    """The modules in their order. Raises ValueError for others than these kinds."""
    path = root / MODULES
    values = parse(read_text(path), str(path))
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ValueError(f"{path} must be a list of modules; download the folder again")
    entries: list[ModuleEntry] = []
    names: list[str] = []
    for value in values:
        refuse_unknown(path, value, ("idx", "name", "path", "type", "kwargs"))
        fields = check_object(f"{path}: ", value, dict.fromkeys(_TEXTS, str) | {"kwargs": list[str]})
        if missing := [name for name in _TEXTS if name not in fields]:
            raise ValueError(f"{path}: module {len(entries)} has no {missing[0]}; download the folder again")
        names.append(fields["name"])
        entries.append(ModuleEntry(_kind(path, fields, kinds), root / fields["path"]))
        if entries[-1].folder == root and entries[-1].kind != "Transformer":
            raise ValueError(
                f"{path}: path={fields['path']!r} of type={fields['type']!r} is the folder of the model; correct one"
            )
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(
            f"{path}: name={repeated[0]!r} stands {names.count(repeated[0])} times, and sentence-transformers keeps "
            "one module of a name; correct it"
        )
    return entries


_TEXTS = "name", "path", "type"


def leaves_folder(path: str) -> bool:
    """Whether the path of a module is not in the folder that names it."""
    place = PureWindowsPath(path)  # it knows both slashes
    return bool(place.anchor) or ".." in place.parts


def _kind(path: Path, fields: Mapping[str, str], kinds: Sequence[str]) -> str:
    """The class of a module. Raises ValueError for one beside `kinds`, and for a path that leaves the folder."""
    match = _TYPE.fullmatch(fields["type"])
    if match is None or match[1] not in kinds:
        fault = f"{path}: the module of type={fields['type']!r} is not understood"
        raise ValueError(f"{fault}; known are {', '.join(kinds)} of sentence-transformers")
    if fields.get("kwargs"):
        raise ValueError(f"{path}: kwargs={fields['kwargs']} of {match[1]} is not understood; remove it")
    if leaves_folder(fields["path"]):
        raise ValueError(f"{path}: path={fields['path']} leaves the folder; correct it")
    return match[1]
