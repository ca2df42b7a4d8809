"""Which tensors of a folder hold our parameters.

The table of a family leads from paths in our parameter tree to names of tensors:

    "encoder.embed.tokens": "bert.embeddings.word_embeddings.weight", an array
    "encoder.embed.norm": "bert.embeddings.LayerNorm",                its scale is .weight there, its bias .bias
    "encoder.layers.mixer.query": "bert.encoder.layer.{}.attention.self.query",   its kernel is .weight there
    "decoder.layers.mixer.key": HfTensor("transformer.h.{}.attn.c_attn", part=1, parts=3, transposed=False)

`encoder.layers.mixer.query` stands for all layers, in prefix, period or tail (`tfm.Layers`): row r of kind k of a
period of p is layer len(prefix) + r * p + k.

torch keeps a kernel as [out, in] and all heads as one axis; ours is [in, out] with an axis for each letter. `Leaf.view`
shows a tensor as one layer of our parameter without a copy: reading copies out of that view, writing copies into it.
"""

import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from tfm.hf.tensors import Entry
from tfm.layers.stack import Layers, layer_indices
from tfm.params import Spec


class HfTensor(NamedTuple):
    """A tensor that holds a parameter of ours, or of each layer.

    name: its name, without .weight or .bias where our parameter is a linear map or a norm, or without these words where
        it ends with _; {} stands for the layer
    part, parts: its outputs hold this many parameters of ours; and which of them this one is, counted from 0
    by_head: the parts alternate from head to head
    transposed: a kernel is [out, in]
    factor: our parameter is the tensor times this
    skip_rows: rows at its beginning that nothing uses; they are written as zeros
    axes: letters of its axes, where it is not [out, in]: those of our parameter in another order, and 1
    fallback_name: the name in folders that lack the first one
    """

    name: str
    part: int = 0
    parts: int = 1
    by_head: bool = False
    transposed: bool = True
    factor: float = 1.0
    skip_rows: int = 0
    axes: str = ""
    fallback_name: str = ""


Names = Mapping[str, str | HfTensor]


class Leaf(NamedTuple):
    """A parameter of ours, and the tensors that hold it.

    path: where it is in the spec tree
    tensor: how each of the tensors is stored
    inputs: axes (without L) that are the inputs of a product; None for an array that keeps its axes
    layers: the layer of each row of a stacked parameter, or the one layer of another
    """

    path: str
    spec: Spec
    tensor: HfTensor
    inputs: int | None
    layers: tuple[int, ...]

    @property
    def stacked(self) -> bool:
        """Whether the first axis is layers, with a tensor each."""
        return self.spec.axes.startswith("L")

    @property
    def names(self) -> list[str]:
        """The tensors that hold it, one for each layer."""
        return [self.tensor.name.replace("{}", str(layer)) for layer in self.layers]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape of one layer, without the rows that pad the vocabulary."""
        if not self.spec.shape:
            return ()
        first, *rest = self.spec.shape[self.stacked :]
        return first - self.spec.padding // math.prod(rest), *rest

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each tensor."""
        sizes, tensor = self.sizes, self.tensor
        if self._is_permuted:
            by_letter = dict(zip(self._letters, sizes, strict=True)) | {"1": 1}
            return tuple(by_letter[letter] for letter in tensor.axes)
        if self.inputs is None:
            return sizes[0] + tensor.skip_rows, *([math.prod(sizes[1:])] if len(sizes) > 1 else [])
        outputs = (math.prod(sizes[self.inputs :]) * tensor.parts,)
        inputs = (math.prod(sizes[: self.inputs]),) if self.inputs else ()
        return outputs + inputs if tensor.transposed else inputs + outputs

    def view(self, array: Any) -> Any:
        """A tensor, of numpy or jax, as one layer of this parameter."""
        sizes, tensor = self.sizes, self.tensor
        if self._is_permuted:
            letters = tensor.axes.replace("1", "")
            by_letter = dict(zip(self._letters, sizes, strict=True))
            array = reshape(array, *map(by_letter.__getitem__, letters))
            return array.transpose(*map(letters.index, self._letters))
        array = reshape(array, *self.shape)
        if self.inputs is None:
            return reshape(array[tensor.skip_rows :], *sizes)
        outputs, inputs = sizes[self.inputs :], sizes[: self.inputs]
        outputs_first = tensor.transposed or not inputs
        array = reshape(self._part(array if outputs_first else array.T), *outputs, *inputs)
        return array.transpose(*range(len(outputs), array.ndim), *range(len(outputs)))

    @property
    def _letters(self) -> str:
        """The letters of the axes of one layer of our parameter."""
        return self.spec.axes[self.stacked :]

    @property
    def _is_permuted(self) -> bool:
        """Whether the tensor says its axes, and this is what they are of; the bias of a map is not."""
        return sorted(self.tensor.axes.replace("1", "")) == sorted(self._letters)

    def _part(self, array: Any) -> Any:
        """A tensor [out, ...] that holds several parameters -> the outputs of this one."""
        tensor = self.tensor
        if tensor.parts == 1:
            return array
        if tensor.by_head:
            return reshape(array, -1, tensor.parts, self.sizes[-1], *array.shape[1:])[:, tensor.part]
        return reshape(array, tensor.parts, -1, *array.shape[1:])[tensor.part]


def reshape(array: Any, *sizes: int) -> Any:
    """An array in another shape; numpy's is not copied, or what is written to it would be lost."""
    return array.reshape(sizes, copy=False) if isinstance(array, np.ndarray) else array.reshape(sizes)


def leaves(specs: Any, names: Names) -> list[Leaf]:
    """Every parameter of a spec tree, in its order. Raises ValueError for one that the table does not name."""
    return [_leaf(path, spec, layers, names) for path, spec, layers in _layered(specs)]


def _layered(specs: Any) -> Iterator[tuple[str, Spec, tuple[int, ...]]]:
    """Path, spec and layers of every parameter."""
    for path, node in _paths(specs, is_leaf=lambda node: isinstance(node, Layers)):
        if not isinstance(node, Layers):
            yield path, node, (0,)
            continue
        for part, trees in layer_indices(node).items():
            for index, layers in enumerate(trees):
                for inner, spec in _paths(getattr(node, part)[index]):
                    yield f"{path}.{part}.{index}.{inner}", spec, layers


def _paths(tree: Any, is_leaf: Any = None) -> list[tuple[str, Any]]:
    """The leaves of a tree with their dotted paths."""
    return [
        (jax.tree_util.keystr(path, simple=True, separator="."), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree, is_leaf)
    ]


def _leaf(path: str, spec: Spec, layers: tuple[int, ...], names: Names) -> Leaf:
    """A parameter with the tensors that the table names for it."""
    name = re.sub(r"\.layers\.(prefix|period|tail)\.\d+\.", ".layers.", path)
    part, _, field = name.rpartition(".")
    if name in names:
        tensor = _tensor(names[name])
        return Leaf(path, spec, tensor, None, layers)
    if part in names and field in ("kernel", "scale", "bias"):
        tensor, suffix = _tensor(names[part]), "bias" if field == "bias" else "weight"
        suffix = suffix if tensor.name.endswith("_") else f".{suffix}"
        fallback_name = tensor.fallback_name and tensor.fallback_name + suffix
        tensor = tensor._replace(name=tensor.name + suffix, fallback_name=fallback_name)
        return Leaf(path, spec, tensor, spec.inputs, layers)
    raise ValueError(f"{name} has no place in such a folder")


def _tensor(entry: str | HfTensor) -> HfTensor:
    return HfTensor(entry) if isinstance(entry, str) else entry


def entries(model_leaves: list[Leaf], params: Any) -> list[Entry]:
    """Name, dtype, shape of every tensor, and a function that assembles it out of the parameters that it holds."""
    users: dict[str, list[tuple[Leaf, Any, int]]] = {}
    for leaf, values in zip(model_leaves, jax.tree.leaves(params), strict=True):
        for row, name in enumerate(leaf.names):
            users.setdefault(name, []).append((leaf, values, row))
    return [(name, np.dtype(np.float32), parts[0][0].shape, partial(assemble, parts)) for name, parts in users.items()]


def assemble(parts: list[tuple[Leaf, Any, int]]) -> np.ndarray:
    """A tensor out of the rows of all the parameters that it holds."""
    tensor = np.zeros(parts[0][0].shape, np.float32)
    for leaf, values, row in parts:
        layer = np.asarray(values[row] if leaf.stacked else values)
        view = leaf.view(tensor)
        view[...] = layer[tuple(slice(0, size) for size in view.shape)]
        if leaf.tensor.factor != 1:
            view /= np.float32(leaf.tensor.factor)
    return tensor
