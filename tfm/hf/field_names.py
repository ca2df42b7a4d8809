"""Errors about fields of `Config`, told by the fields of config.json that say them."""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from tfm.hf.fields import Fields

# Values of several types, which a field is tried with.
PROBES = (2, True, [2, 2], [2, 2, 2])
# Fields of config.json -> fields of `Config`, and the names of those that were read.
Read = Callable[[Fields], tuple[dict[str, object], set[str]]]


def renamed(message: str, names: Mapping[str, str], read: Read, fields: Fields) -> str:
    """An error about fields of `Config`, with their names in config.json.

    names: fields of config.json by those of `Config`. A field that `read` computes keeps its name, and what it is
    computed of follows. A name without dots may be of an option beside the first one.
    """
    prefix = message.partition("=")[0].rpartition(".")[0]
    names = {**names, **{name.removeprefix(f"{prefix}."): hf_name for name, hf_name in names.items() if prefix}}
    computed = [name for name in re.findall(r"\b[\w.]+(?==)", message) if name not in names]
    sources = _sources(dict.fromkeys(computed), prefix, read, fields, {*names.values()})
    message = re.sub(r"\b[\w.]+(?==)", lambda match: names.get(match[0], match[0]), message)
    return f"{message} ({'; '.join(sources)})" if sources else message


def _sources(computed: Iterable[str], prefix: str, read: Read, fields: Fields, in_tables: Collection[str]) -> list[str]:
    """`head_size is of hidden_size, num_attention_heads` for each field of `Config` that `read` computes."""
    values, used = read(fields)
    sentences: dict[str, str] = {}
    for name in computed:
        dotted = name if name in values else f"{prefix}.{name}"
        if dotted in values and dotted not in sentences:
            deciding = [field for field in sorted({*used, *in_tables}) if _decides(field, dotted, read, fields)]
            sentences |= {dotted: f"{name} is of {', '.join(deciding)}"} if deciding else {}
    return [*sentences.values()]


def _decides(field: str, name: str, read: Read, fields: Fields) -> bool:
    """Whether a field of `Config` has another value without a field of config.json, or with one that is absent."""
    rest = {key: value for key, value in fields.items() if key != field}
    for changed in (rest, *(rest | {field: probe} for probe in PROBES)):
        with contextlib.suppress(ValueError, TypeError, ArithmeticError, AttributeError):
            if read(changed)[0].get(name) != read(fields)[0].get(name):
                return True
    return False
