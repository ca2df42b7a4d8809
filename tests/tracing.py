"""Counts the functions of the project that a call runs, as Python sees them: what jax compiles is traced once."""

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import jax

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = tuple(f"{ROOT / package}/" for package in ("tfm", "train"))


class Counts(NamedTuple):
    """What a call has run: files and functions of the project, and the most of its functions on the stack at once."""

    files: int
    functions: int
    depth: int


class Tracer:
    """Between `with Tracer() as tracer:` and its end, the functions of the project that are called.

    functions: their code, modules as they are imported aside
    deepest: the longest stack of them
    """

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self.deepest: list[CodeType] = []

    def __enter__(self) -> "Tracer":
        sys.settrace(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    @property
    def counts(self) -> Counts:
        """The numbers of what was called."""
        files = {code.co_filename for code in self.functions}
        return Counts(len(files), len(self.functions), len(self.deepest))

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        if is_own(frame.f_code):
            self.functions.add(frame.f_code)
            stack = own_stack(frame)
            if len(stack) > len(self.deepest):
                self.deepest = stack


def is_own(code: CodeType) -> bool:
    """Whether code is a function of the project, and no module."""
    return code.co_filename.startswith(PACKAGES) and code.co_name != "<module>"


def own_stack(frame: FrameType | None) -> list[CodeType]:
    """The functions of the project that are on the stack, from the first to that of a frame."""
    stack = []
    while frame is not None:
        if is_own(frame.f_code):
            stack.append(frame.f_code)
        frame = frame.f_back
    return stack[::-1]


def names(stack: list[CodeType]) -> list[str]:
    """The functions of a stack with their files, for who asks why it is deep."""
    return [f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_qualname}" for code in stack]


def forget() -> None:
    """Forgets what functions of the project have kept of earlier calls, and all compiled programs."""
    jax.clear_caches()
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] in ("tfm", "train"):
            for function in vars(module).values():
                if hasattr(function, "cache_clear"):
                    function.cache_clear()
