"""The tensors of low-rank updates in an adapter folder: their names, and how each is stored."""

import dataclasses
from collections.abc import Iterable, Sequence

from tfm.hf.family import Family, HfHead
from tfm.hf.parameters import HfTensor, Leaf
from tfm.hf.ties import PREDICTORS, copies_of
from tfm.low_rank import RANK


def module_of(tensor: str) -> str:
    """The module of torch that a tensor belongs to."""
    return tensor.rpartition(".")[0]


def update_names(leaf: Leaf, tensor: str) -> tuple[str, str]:
    """The tensors of the update of a tensor; `leaf` is a parameter in it."""
    names = ("lora_A.weight", "lora_B.weight") if leaf.inputs is not None else ("lora_embedding_A", "lora_embedding_B")
    return f"{module_of(tensor)}.{names[0]}", f"{module_of(tensor)}.{names[1]}"


def down_leaf(leaf: Leaf, rank: int) -> Leaf:
    """How lora_A [r, inputs] of a kernel, or lora_embedding_A of a table, is stored."""
    cut = leaf.stacked + leaf.spec.inputs
    rows, padded = leaf.sizes[0], leaf.spec.shape[0]
    spec = dataclasses.replace(
        leaf.spec,
        axes=leaf.spec.axes[:cut] + RANK,
        shape=(*leaf.spec.shape[:cut], rank),
        padding=0 if leaf.stacked else (padded - rows) * rank,
    )
    return leaf._replace(spec=spec, inputs=leaf.spec.inputs, tensor=HfTensor(leaf.tensor.name))


def up_leaf(leaf: Leaf, rank: int) -> Leaf:
    """How lora_B [outputs, r] is stored: as the outputs of the kernel are."""
    first, cut = int(leaf.stacked), leaf.stacked + leaf.spec.inputs
    axes = leaf.spec.axes[:first] + RANK + leaf.spec.axes[cut:]
    shape = (*leaf.spec.shape[:first], rank, *leaf.spec.shape[cut:])
    spec = dataclasses.replace(leaf.spec, axes=axes, shape=shape, padding=0, inputs=1)
    return leaf._replace(spec=spec, inputs=1, tensor=leaf.tensor._replace(transposed=True))


def untied(tensors: Iterable[str], table: Sequence[Leaf], family: Family, head: HfHead) -> tuple[str, str] | None:
    """A tensor of the base that tensors of an adapter change, and a copy that they leave as it is; None without any.

    PEFT holds the former in a module of its own: it is no longer tied.
    """
    names = set(tensors)
    modules = {name.partition(".lora_")[0] if ".lora_" in name else module_of(name) for name in names}
    for leaf in table if head.kind in PREDICTORS else ():
        copies = set(copies_of(leaf, table, family)) - names
        unchanged = [copy for copy in family.copies.get(leaf.tensor.name, ()) if copy in copies]
        if unchanged and module_of(leaf.tensor.name) in modules:
            return leaf.tensor.name, unchanged[0]
    return None
