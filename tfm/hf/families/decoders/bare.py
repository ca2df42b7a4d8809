"""Decoders without an output: folders of the bare model, whose states are read."""

from collections.abc import Mapping

from tfm.hf.family import HfHead
from tfm.hf.parameters import HfTensor

# A token sees itself and those before it.
CAUSAL = {"head.causal": True}


def bare(model: str) -> dict[str, HfHead]:
    """The head of the bare model."""
    return {model: HfHead("model", overrides=CAUSAL)}


def in_both(names: Mapping[str, str | HfTensor]) -> dict[str, str | HfTensor]:
    """The tensors of a decoder, and of one whose states are read: its parameters are those of an encoder."""
    own = {path.replace("decoder.", "encoder.", 1): tensor for path, tensor in names.items() if "decoder." in path}
    return {**names, **own}
