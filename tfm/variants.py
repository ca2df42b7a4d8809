"""Where the functions of a variant are: one file a variant, named like the tag of its options."""

import functools
import importlib
from types import ModuleType
from typing import Any

from tfm.options.choices import Options


def load(options: Options) -> ModuleType:
    """The module of a variant: the module of its options leads to it."""
    package = type(options).__module__.replace("tfm.config.", "")
    return _module(package, options.name)


@functools.cache
def _module(package: str, name: str) -> ModuleType:
    for place in (
        f"tfm.{package.partition('.')[0]}",
        f"tfm.catalogue.{package}",
        f"tfm.catalogue.{package.rpartition('.')[0]}",
    ):
        module = f"{place}.{'longformer' if name == 'global' else name}"
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name not in (module, place):
                raise
    raise ModuleNotFoundError(name)


def no_parameters(*arguments: Any) -> None:
    """The spec tree of a variant without parameters."""


def unchanged(specs: Any, options: Options, config: Any) -> Any:
    """The spec tree as it is."""
    return specs
