"""The tensors of low-rank updates in an adapter folder: their names, and how each is stored."""

import dataclasses

from tfm.hf.parameters import HfTensor, Leaf
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
