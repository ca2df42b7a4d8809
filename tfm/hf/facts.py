"""Facts that config.json says in several places: one value, or an error that names the places."""

from collections.abc import Mapping
from typing import Any

from tfm.hf.fields import Fields, class_names


def agreed(places: Mapping[str, Any]) -> Any:
    """The value of all the places that have one; None where none has. null is no value.

    Raises ValueError where two differ.
    """
    values = {place: value for place, value in places.items() if value is not None}
    for first in values:
        for place, value in values.items():
            if value != values[first]:
                raise ValueError(
                    f"config.json has {first}={values[first]!r} and {place}={value!r}, which must be equal; "
                    "remove the one that is wrong"
                )
        return values[first]
    return None


def with_aliases(fields: Fields, aliases: Mapping[str, str]) -> dict[str, Any]:
    """The fields by their first names. Raises ValueError where two names of one field have different values."""
    renamed = {name: value for name, value in fields.items() if name not in aliases}
    for alias, name in aliases.items():
        value = agreed({name: renamed.get(name), alias: fields.get(alias)})
        if value is not None:
            renamed[name] = value
    return renamed


def class_count(fields: Fields) -> int:
    """The number of classes, by default 2. Raises ValueError where id2label and num_labels differ."""
    names = class_names(fields)
    count = agreed({"num_labels": fields.get("num_labels"), "the number of classes in id2label": len(names) or None})
    return 2 if count is None else count
