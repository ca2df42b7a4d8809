"""What the grammars of this folder write, kept between commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from train.files import cache


def kept(write: Callable[..., object], **arguments: object) -> Any:
    """What a function of this folder returns, as JSON gives it back: tuples become lists.

    It is called once for the same arguments and the same code of the folder.
    """
    code = (path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py")))
    key = cache.digest([write.__module__, write.__qualname__, repr(sorted(arguments.items()))], code)
    return cache.json_value(f"generated-{key}", lambda: write(**arguments))
