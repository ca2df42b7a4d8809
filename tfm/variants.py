"""Where the functions of a variant are: one file a variant, named like the tag of its options."""

import functools
import importlib
from types import ModuleType
from typing import Any

from tfm.config.choices import Options


@functools.cache
def load(package: str, name: str) -> ModuleType:
    """The module `tfm.PACKAGE.NAME`."""
    return importlib.import_module(f"tfm.{package}.{name}")


def no_parameters(*arguments: Any) -> None:
    """The spec tree of a variant without parameters."""


def unchanged(specs: Any, options: Options, config: Any) -> Any:
    """The spec tree as it is."""
    return specs
