"""Which tensors of a folder our parameters are made of.

A family says so in a table from the paths of our parts to their names:

    "encoder.embed.tokens": "bert.embeddings.word_embeddings.weight",            an array
    "encoder.embed.norm": "bert.embeddings.LayerNorm",                           its scale is .weight there, its bias .bias
    "encoder.blocks.attn.query": "bert.encoder.layer.{}.attention.self.query",   its kernel is .weight there; a layer each
    "decoder.blocks.attn.key": Theirs("transformer.h.{}.attn.c_attn", part=1, parts=3, turned=False)

torch keeps a kernel as [out, in] and all heads as one axis; ours is [in, out] with an axis for each letter. `Leaf.view` shows a tensor of
theirs as one layer of ours without copying it: to read is to copy out of that view, to write is to copy into it.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from tfm.params import Spec


class Theirs(NamedTuple):
    """The name of a tensor (without .weight or .bias where ours is a linear map or a norm), and how it is kept.

    part, parts: along its outputs it holds so many of ours, and this is the one
    by_head: it holds them head by head, not one after the other
    turned: a kernel is [out, in]
    factor: ours is so many times theirs
    skip: its first rows, which nothing uses, are left out; they are written as zeros
    row: it is kept as one row [1, n]
    first: the number of the first layer that has it
    other: its name where there is none of the first
    """

    name: str
    part: int = 0
    parts: int = 1
    by_head: bool = False
    turned: bool = True
    factor: float = 1.0
    skip: int = 0
    row: bool = False
    first: int = 0
    other: str = ""


Names = Mapping[str, str | Theirs]


class Leaf(NamedTuple):
    """One of our parameters: its path and spec, the tensors it is made of, and for a linear map how many axes (without L) are inputs."""

    path: str
    spec: Spec
    theirs: Theirs
    inputs: int | None

    @property
    def stacked(self) -> bool:
        """Whether the first axis are layers, each a tensor there."""
        return self.spec.axes.startswith("L")

    @property
    def names(self) -> list[str]:
        """The tensors it is made of, one for each layer."""
        layers = range(self.spec.shape[0] if self.stacked else 1)
        return [self.theirs.name.replace("{}", str(layer + self.theirs.first)) for layer in layers]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape of one layer, without the rows that pad the vocabulary."""
        first, *rest = self.spec.shape[self.stacked :]
        return first - self.spec.padding // math.prod(rest), *rest

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor there."""
        sizes, theirs = self.sizes, self.theirs
        if self.inputs is None:
            shape = (sizes[0] + theirs.skip, *([math.prod(sizes[1:])] if len(sizes) > 1 else []))
            return (1, *shape) if theirs.row else shape
        outputs = (math.prod(sizes[self.inputs :]) * theirs.parts,)
        inputs = (math.prod(sizes[: self.inputs]),) if self.inputs else ()
        return outputs + inputs if theirs.turned else inputs + outputs

    def view(self, tensor: Any) -> Any:
        """Where this parameter, or a layer of it, stands in a tensor of theirs, of numpy or jax."""
        sizes, theirs = self.sizes, self.theirs
        if self.inputs is None:
            return shaped(tensor[0] if theirs.row else tensor[theirs.skip :], *sizes)
        outputs, inputs = sizes[self.inputs :], sizes[: self.inputs]
        first = theirs.turned or not inputs
        tensor = shaped(self._part(tensor if first else tensor.T), *outputs, *inputs)
        return tensor.transpose(*range(len(outputs), tensor.ndim), *range(len(outputs)))

    def _part(self, tensor: Any) -> Any:
        """Of a tensor [out, ...] that holds several, the outputs of this one."""
        theirs = self.theirs
        if theirs.parts == 1:
            return tensor
        if theirs.by_head:
            return shaped(tensor, -1, theirs.parts, self.sizes[-1], *tensor.shape[1:])[:, theirs.part]
        return shaped(tensor, theirs.parts, -1, *tensor.shape[1:])[theirs.part]


def shaped(tensor: Any, *sizes: int) -> Any:
    """A tensor in another shape; numpy's is not copied, or what is written to it would be lost."""
    return tensor.reshape(sizes, copy=False) if isinstance(tensor, np.ndarray) else tensor.reshape(sizes)


def leaves(specs: Any, names: Names) -> list[Leaf]:
    """Every parameter of a spec tree, with the tensors it is made of. Raises ValueError for one that the table does not name."""
    found = []
    for path, spec in jax.tree_util.tree_leaves_with_path(specs):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        part, _, field = name.rpartition(".")
        if name in names:
            found.append(Leaf(name, spec, _theirs(names[name]), None))
        elif part in names and field in ("kernel", "scale", "bias"):
            theirs, last = _theirs(names[part]), "bias" if field == "bias" else "weight"
            theirs = theirs._replace(name=f"{theirs.name}.{last}", other=theirs.other and f"{theirs.other}.{last}")
            found.append(Leaf(name, spec, theirs, _inputs(part, field, spec.axes.removeprefix("L"))))
        else:
            raise ValueError(f"{name} has no place in such a folder")
    return found


def _theirs(entry: str | Theirs) -> Theirs:
    return Theirs(entry) if isinstance(entry, str) else entry


def _inputs(part: str, field: str, axes: str) -> int | None:
    """How many axes of a kernel are inputs: all heads, or one; a bias has none, and a norm keeps its shape."""
    if field == "scale" or part.endswith("norm"):
        return None
    return (3 if axes.startswith("KGH") else 1) if field == "kernel" else 0


def entries(found: list[Leaf], params: Any) -> list:
    """Name, dtype, shape of every tensor, and a function that makes it out of the parameters that it holds."""
    users: dict[str, list] = {}
    for leaf, values in zip(found, jax.tree.leaves(params), strict=True):
        for layer, name in enumerate(leaf.names):
            users.setdefault(name, []).append((leaf, values, layer))
    return [
        (name, np.dtype(np.float32), each[0][0].shape, lambda each=each: made(each)) for name, each in users.items()
    ]


def made(users: list) -> np.ndarray:
    """A tensor out of all the parameters that stand in it."""
    tensor = np.zeros(users[0][0].shape, np.float32)
    for leaf, values, layer in users:
        ours = np.asarray(values[layer] if leaf.stacked else values)
        view = leaf.view(tensor)
        view[...] = ours[tuple(slice(0, size) for size in view.shape)]
        if leaf.theirs.factor != 1:
            view /= np.float32(leaf.theirs.factor)
    return tensor
