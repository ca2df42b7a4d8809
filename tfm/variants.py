"""Where the functions of a variant are: one file a variant, named like the tag of its options."""

import functools
import importlib
from types import ModuleType
from typing import Any

from tfm.config.choices import Options


def load(options: Options) -> ModuleType:
    """The module of a variant: its options in tfm/config/mixers/kernels.py lead to tfm/mixers/kernels/TAG.py."""
    return _module(type(options).__module__.replace("tfm.config.", "tfm."), options.name)


@functools.cache
def _module(package: str, name: str) -> ModuleType:
    return importlib.import_module(f"{package}.{name}")


def no_parameters(*arguments: Any) -> None:
    """The spec tree of a variant without parameters."""


def unchanged(specs: Any, options: Options, config: Any) -> Any:
    """The spec tree as it is."""
    return specs
