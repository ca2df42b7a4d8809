"""What comes from outside, and is broken: as UserError. The rules themselves are in `tfm.config`."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints, is_typeddict

from tfm.options.choices import check_type
from train import UserError


@contextlib.contextmanager
def user_errors(where: str = "") -> Iterator[None]:
    """Turns ValueError, as the gates of `tfm.config` raise it, into UserError; it stands behind `where`."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        raise UserError(f"{where}: {text}" if where and where not in text else text) from error


def check_complete(key: str, value: Any, kind: Any) -> Any:
    """An object with all fields of a TypedDict, in their types; also those of objects in it. Raises ValueError."""
    checked = check_type(key, value, kind)
    for name, hint in get_type_hints(kind).items():
        if name not in checked:
            raise ValueError(f"{key} has no {name}")
        if is_typeddict(hint):
            check_complete(f"{key}.{name}", checked[name], hint)
    return checked


def environment_number(environ: Mapping[str, str], name: str, hint: Any = int) -> Any:
    """The whole number in an environment variable; None where it is not set. Raises UserError for other texts."""
    text = environ.get(name, "").strip()
    if not text:
        return None
    with user_errors():
        return check_type(name, int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else text, hint)
