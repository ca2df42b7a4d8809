"""JSON that every reader takes: no NaN and no infinity, which json.dumps would write by default."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import SupportsFloat

from train import UserError


def json_text(value: object, indent: int | None = None) -> str:
    """A value as JSON. Raises UserError, which names the first value that is not finite."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False, default=float)
    except ValueError as error:
        for name, metric in _not_finite(value, ""):
            raise UserError(
                f"{name or 'the result'} is {metric}, and JSON has finite numbers only; "
                "look for what is not finite in the weights or the data"
            ) from error
        raise


def _not_finite(value: object, name: str) -> Iterator[tuple[str, float]]:
    """The values that are not finite, by their dotted names."""
    items: Iterable[tuple[object, object]]
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    else:
        if isinstance(value, SupportsFloat) and not math.isfinite(value):
            yield name, float(value)
        return
    for key, inner in items:
        yield from _not_finite(inner, f"{name}.{key}" if name else str(key))
