"""What is wrong with a folder whose tensors are not those that its config.json promises, and with which field."""

import re
import warnings
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from tfm.config.model import Config
from tfm.hf.facts import class_count
from tfm.hf.family import Family, HfHead
from tfm.hf.field_names import PROBES
from tfm.hf.fields import Fields, flat_fields
from tfm.hf.parameters import Leaf, leaves
from tfm.hf.tensors import Weights
from tfm.hf.ties import renamed
from tfm.options.json_text import Json

Shape = tuple[int, ...]


class Promise(NamedTuple):
    """What config.json says of the tensors."""

    fields: Fields
    family: Family
    head: HfHead

    @property
    def architecture(self) -> str:
        """The name of the head."""
        return self.family.architecture(self.fields)


def report(
    config: Config,
    model_leaves: Sequence[Leaf],
    reinitialized: frozenset[str],
    tensors: Weights,
    promise: Promise,
    folder: Path,
) -> None:
    """Raises ValueError where a tensor is missing or has another shape; warns where one is left over."""
    shapes = {name: leaf.shape for leaf in model_leaves for name in leaf.names if leaf.path not in reinitialized}
    shapes |= _constants(promise.family, config, tensors)
    missing = [name for name in shapes if name not in tensors]
    mismatched = [name for name, shape in shapes.items() if name in tensors and tensors.like(name).shape != shape]
    for name in shapes.keys() - {*missing, *mismatched}:
        if tensors.like(name).dtype.kind in "iub":
            fault = f"{folder} has {name} as {tensors.like(name).dtype}"
            raise ValueError(
                f"{fault}, which are no weights without the scales of a quantization_config; "
                "give the model before it was quantized"
            )
    if missing:
        fault = f"{folder} lacks {abbreviate(missing)}"
        if all(in_head(leaf) for leaf in model_leaves if not {*missing}.isdisjoint(leaf.names)):
            head = f"the head of {promise.architecture}{suspects(missing[0], promise, tensors)}"
            raise ValueError(f"{fault}, {head}; {_remedy_of_head(promise, folder)}")
        raise ValueError(
            f"{fault}; config.json promises them{suspects(missing[0], promise, tensors)}, "
            "so download the folder again or correct it"
        )
    if mismatched:
        faults = [f"{name} of shape {tensors.like(name).shape} instead of {shapes[name]}" for name in mismatched]
        fields = suspects(mismatched[0], promise, tensors)
        raise ValueError(
            f"{folder} has {abbreviate(faults)}; config.json and the weights are not of the same model{fields}"
        )
    used = {name for leaf in model_leaves for name in leaf.names}
    _say_spellings(used, promise, folder)
    _say_unused(used, tensors, promise, folder)
    if not reinitialized:  # another head than that of the folder may be wanted
        _say_heads(used, tensors, promise, folder)


def in_head(leaf: Leaf) -> bool:
    """Whether a parameter is of a head, and of no encoder or decoder."""
    return not leaf.path.startswith(("encoder.", "decoder.", "text.", "image."))


def _remedy_of_head(promise: Promise, folder: Path) -> str:
    """What to do about a head that a folder lacks."""
    bare = next((name for name, head in promise.family.heads.items() if head.kind == "model"), None)
    body = f", or say architectures=[{bare}] in config.json to read the model without it" if bare else ""
    return f"train a new one with --init={folder}{body}"


def _say_unused(used: set[str], tensors: Weights, promise: Promise, folder: Path) -> None:
    """Warns of tensors that the model does not use."""
    unused = [name for name in tensors if name not in used and not re.search(promise.family.unused, name)]
    if unused:
        in_body = next(
            (name for name in unused if promise.family.prefix and name.startswith(promise.family.prefix)), ""
        )
        fields = suspects(in_body, promise, tensors) if in_body else ""
        warnings.warn(f"{folder} also has {abbreviate(unused)}, which this model does not use{fields}", stacklevel=4)


def _say_heads(used: set[str], tensors: Weights, promise: Promise, folder: Path) -> None:
    """Warns of weights of heads that the architecture has not, which no other check counts."""
    family, prefix = promise.family, promise.family.prefix
    used = used | {twin for twins in family.copies.values() for twin in twins}
    has_prefix = bool(prefix) and any(name.startswith(prefix) for name in tensors)
    entries = [entry for head in family.heads.values() for entry in head.names.values()]
    modules = [entry if isinstance(entry, str) else entry.name for entry in entries]
    parts = tuple(f"{name}." for module in modules for name in (module, module.removeprefix(prefix)))
    unused = [
        name
        for name in tensors
        if name not in used
        and re.search(family.unused, name)
        and not re.search(family.spare, name)
        and (name.startswith(parts) or (has_prefix and not name.startswith(prefix)))
    ]
    if unused:
        warnings.warn(
            f"{folder} also has {abbreviate(unused)}, which {promise.architecture} does not use", stacklevel=4
        )


def _say_spellings(used: Iterable[str], promise: Promise, folder: Path) -> None:
    """Warns where tensors have the names of another value of a field than config.json says."""
    for field, beginnings in promise.family.spellings.items():
        stated = promise.fields.get(field)
        stated = next(iter(beginnings)) if stated is None else stated
        for value, beginning in beginnings.items():
            if value != stated and any(name.startswith(beginning) for name in used):
                warnings.warn(
                    f"{folder} has {beginning}*, the names of {field}={value}, and config.json says {field}={stated}; "
                    "they are read, where transformers starts them anew",
                    stacklevel=5,
                )


def abbreviate(names: Iterable[str]) -> str:
    """The first few of some names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def suspects(name: str, promise: Promise, tensors: Weights) -> str:
    """The fields that alone explain why a tensor is missing, unused or of another shape, with a value that fits; where
    no value does, those that decide its shape; "" for none."""
    shape = tensors.like(name).shape if name in tensors else None
    family, flat = promise.family, flat_fields(promise.fields, promise.family.nested)
    fits: list[str] = []
    deciding: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        promised = (_shapes(promise, tensors) or {}).get(name)
        for field in sorted({*family.fields, *family.allowed, *family.read(flat)[1]}):
            stated = f"{field}={flat.get(field, 'absent')}"
            for value in _alternatives(field, flat, name, (promised, shape), family):
                shapes = _shapes(promise._replace(fields=flat | {field: value}), tensors)
                if shapes is not None and promised and shapes.get(name) != promised and stated not in deciding:
                    deciding.append(stated)
                if shapes is not None and shapes.get(name) == shape:
                    fits.append(f"{stated}, where {value} fits")
                    break
        for size in shape or ():
            classes: Fields = flat | {"id2label": {str(index): "" for index in range(size)}, "num_labels": None}
            shapes = _shapes(promise._replace(fields=classes), tensors)
            if promised != shape and shapes is not None and shapes.get(name) == shape:
                fits.append(f"{class_count(flat)} classes by id2label, where {size} fit")
                break
    if not fits and deciding:
        return f" (of {', '.join(deciding)})"
    return f" ({' or '.join(fits)})" if fits else ""


def _alternatives(
    field: str, fields: Fields, name: str, shapes: tuple[Shape | None, Shape | None], family: Family
) -> list[Json]:
    """Values that a field may have had when a tensor was written, most likely first.

    A number is tried with the sizes of the tensor, with the layers up to that in its name, in proportion to the sizes,
    inversely or as the side of a picture, and with the other numbers of config.json where the tensor is missing; a
    fraction in proportion to the sizes; a list backwards; a field that is absent with values of several types.

    shapes: of the tensor, the one that config.json promises and the one in the folder
    """
    promised, shape = (sizes or () for sizes in shapes)
    entry = family.fields.get(field)
    stated = fields.get(field, entry.default if entry else None)
    choices = entry.values if entry and entry.values else family.allowed.get(field, ())
    indices = [int(digits) for digits in re.findall(r"\b\d+\b", name)]
    sizes = [*indices, *(index + 1 for index in indices), *shape, *(size // 2 for size in shape), 0]
    if not shape:
        sizes += [size for size in fields.values() if type(size) is int]
    values: list[Json] = [*choices]
    if stated is None:
        values += [*sizes, *range(1, 17), *PROBES, False]
    elif isinstance(stated, bool):
        values.append(not stated)
    elif isinstance(stated, int | float):
        ratios = [Fraction(expected, stored) for expected, stored in zip(promised, shape, strict=False) if stored]
        scaled = [stated * float(ratio) ** power for ratio in ratios if ratio for power in (1, -1, -0.5)]
        values += sizes if isinstance(stated, int) else []
        values += [int(value + 1e-6) if isinstance(stated, int) else float(f"{value:.2g}") for value in scaled]
    elif isinstance(stated, list):
        values.append(stated[::-1])
    return [value for value in {repr(value): value for value in values}.values() if value != stated]  # 1 is no True


def _shapes(promise: Promise, tensors: Weights) -> dict[str, Shape] | None:
    """The tensors of a model by the names of a folder; None where there is no such model."""
    try:
        config = promise.family.config(promise.fields, promise.head)
        model_leaves = leaves(promise.head.specs(config), promise.family.table(config, promise.head))
    except (ValueError, TypeError, ArithmeticError):
        return None
    shapes = {name: leaf.shape for leaf in renamed(model_leaves, promise.family, tensors) for name in leaf.names}
    return shapes | _constants(promise.family, config, tensors)


def _constants(family: Family, config: Config, tensors: Weights) -> dict[str, Shape]:
    """The shapes of the tensors of a folder that are computed here."""
    names = [name for name in family.constants if name in tensors]
    return {name: tuple(config.sizes[letter] for letter in family.constants[name]) for name in names}
