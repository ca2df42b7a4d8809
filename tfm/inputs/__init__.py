"""Inputs: from what a model reads to vectors. One file an input, named like its tag in `tfm.config.inputs`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tfm import variants
from tfm.config.inputs import Input as InputOptions


class Input(NamedTuple):
    """The functions of one input, as a record.

    specs: (options, config) -> the spec tree
    embed: (params, options, config, inputs) -> [B,T,D] in `config.dtype`
    """

    specs: Callable[..., Any]
    embed: Callable[..., Any]


def input_of(options: InputOptions) -> Input:
    """The functions of the input that options describe."""
    return variants.load("inputs", options.name).INPUT
