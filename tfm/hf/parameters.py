"""The parameters of a model and the tensors of a folder that hold them: their names, and reading and writing them.

The table of a family leads from paths in the parameter tree to names of tensors:

    "encoder.embed.tokens": "bert.embeddings.word_embeddings.weight", an array
    "encoder.embed.norm": "bert.embeddings.LayerNorm",                its scale is .weight there, its bias .bias
    "encoder.layers.mixer.query": "bert.encoder.layer.{}.attention.self.query",   its kernel is .weight there
    "decoder.layers.mixer.key": HfTensor("transformer.h.{}.attn.c_attn", part=1, parts=3, transposed=False)

`encoder.layers.mixer.query` stands for all layers, in prefix, period or tail (`tfm.Layers`): row r of kind k of a
period of p is layer len(prefix) + r * p + k.

torch keeps a kernel as [out, in] and all heads as one axis; here it is [in, out] with an axis for each letter.
`Leaf.view` shows a tensor as one layer of the parameter, without a copy: reading copies out of that view, writing
copies into it.
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import EllipsisType
from typing import NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import NamedSharding

from tfm.hf.tensors import Entry, Weights
from tfm.layers.stack import Layers, layer_indices
from tfm.params import PyTree, Spec

A = TypeVar("A", np.ndarray, jax.Array)


class HfTensor(NamedTuple):
    """A tensor of a folder that holds a parameter, or that of one layer.

    name: its name, without .weight or .bias where the parameter is of a linear map or a norm, or without these words
        where it ends with _; {} stands for the layer, {x} for the expert where each has a tensor of its own; "": no
        folder has it, and it starts as in a new model
    part: index of the parameter among those that the outputs of the tensor hold
    parts: number of these parameters
    by_head: the parts alternate from head to head
    transposed: a kernel is [out, in]
    factor: the parameter is the tensor times this
    skip_rows: rows at its beginning that nothing uses; they are written as zeros
    axes: letters of its axes, where it is not [out, in]: those of the parameter in another order, and 1
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


# What torch calls a running mean, and how many batches it has seen.
_MEAN, _COUNTER = ".running_mean", ".num_batches_tracked"

Names = Mapping[str, str | HfTensor]


class Leaf(NamedTuple):
    """A parameter, and the tensors that hold it.

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
    def leading(self) -> int:
        """How many of the first axes have tensors of their own: layers, experts."""
        return self.spec.axes.startswith("L") + ("{x}" in self.tensor.name)

    @property
    def names(self) -> list[str]:
        """The tensors that hold it, one for each layer, or for each expert of each layer."""
        if not self.tensor.name:
            return []
        names = [self.tensor.name.replace("{}", str(layer)) for layer in self.layers]
        if "{x}" not in self.tensor.name:
            return names
        return [name.replace("{x}", str(index)) for name in names for index in range(self.spec.shape[self.stacked])]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape of one layer, or of one expert, without the rows that pad the vocabulary."""
        if not self.spec.shape:
            return ()
        first, *rest = self.spec.shape[self.leading :]
        return first - self.spec.padding // math.prod(rest), *rest

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each tensor."""
        sizes, tensor, permuted = self.sizes, self.tensor, self._permuted
        if permuted is not None:
            return tuple(permuted.get(letter, 1) for letter in tensor.axes)
        if self.inputs is None:
            return sizes[0] + tensor.skip_rows, *([math.prod(sizes[1:])] if len(sizes) > 1 else [])
        outputs = (math.prod(sizes[self.inputs :]) * tensor.parts,)
        inputs = (math.prod(sizes[: self.inputs]),) if self.inputs else ()
        return outputs + inputs if tensor.transposed else inputs + outputs

    def view(self, array: A) -> A:
        """A tensor, of numpy or jax, as one layer of this parameter."""
        sizes, tensor, permuted = self.sizes, self.tensor, self._permuted
        if permuted is not None:
            letters = tensor.axes.replace("1", "")
            return _reshape(array, *map(permuted.__getitem__, letters)).transpose(*map(letters.index, permuted))
        array = _reshape(array, *self.shape)
        if self.inputs is None:
            return _reshape(array[tensor.skip_rows :], *sizes)
        outputs, inputs = sizes[self.inputs :], sizes[: self.inputs]
        if inputs and not tensor.transposed:
            array = array.T
        if tensor.parts > 1 and tensor.by_head:
            array = _reshape(array, -1, tensor.parts, sizes[-1], *array.shape[1:])[:, tensor.part]
        elif tensor.parts > 1:
            array = _reshape(array, tensor.parts, -1, *array.shape[1:])[tensor.part]
        array = _reshape(array, *outputs, *inputs)
        return array.transpose(*range(len(outputs), array.ndim), *range(len(outputs)))

    @property
    def _permuted(self) -> dict[str, int] | None:
        """The size of each letter of one layer, where the tensor has these axes in another order.

        None where the tensor does not say its axes, or where they are others: those of the kernel beside a bias.
        """
        letters = self.spec.axes[self.leading :]
        is_permuted = sorted(self.tensor.axes.replace("1", "")) == sorted(letters)
        return dict(zip(letters, self.sizes, strict=True)) if is_permuted else None


def _reshape(array: A, *sizes: int) -> A:
    """An array in another shape; numpy's is not copied, or what is written to it would be lost."""
    return array.reshape(sizes, copy=False) if isinstance(array, np.ndarray) else array.reshape(sizes)


def leaves(specs: PyTree, names: Names) -> list[Leaf]:
    """Every parameter of a spec tree, in its order. Raises ValueError for one that the table does not name."""
    return [_leaf(path, spec, layers, names) for path, spec, layers in _layered(specs)]


def _layered(specs: PyTree) -> Iterator[tuple[str, Spec, tuple[int, ...]]]:
    """Path, spec and layers of every parameter."""
    for path, node in _paths(specs, is_leaf=lambda node: isinstance(node, Layers)):
        if not isinstance(node, Layers):
            yield path, node, (0,)
            continue
        for part, trees in layer_indices(node).items():
            for index, layers in enumerate(trees):
                for inner, spec in _paths(getattr(node, part)[index]):
                    yield f"{path}.{part}.{index}.{inner}", spec, layers


def _paths(tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> Iterator[tuple[str, PyTree]]:
    """The leaves of a tree with their dotted paths."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree, is_leaf):
        yield jax.tree_util.keystr(path, simple=True, separator="."), leaf


def _leaf(path: str, spec: Spec, layers: tuple[int, ...], names: Names) -> Leaf:
    """A parameter with the tensors that the table names for it."""
    name = re.sub(r"\.layers\.(prefix|period|tail)\.\d+\.", ".layers.", path)
    module, _, field = name.rpartition(".")
    is_of_module = name not in names and field in ("kernel", "scale", "bias")
    entry = names.get(module if is_of_module else name)
    if entry is None:
        raise ValueError(f"{name} has no place in such a folder")
    tensor = entry if isinstance(entry, HfTensor) else HfTensor(entry)
    if not is_of_module:
        return Leaf(path, spec, tensor, spec.inputs if field == "bias" else None, layers)
    word = "bias" if field == "bias" else "weight"
    suffix = word if tensor.name.endswith("_") else f".{word}"
    fallback_name = tensor.fallback_name and tensor.fallback_name + suffix
    tensor = tensor._replace(name=tensor.name + suffix, fallback_name=fallback_name)
    return Leaf(path, spec, tensor, spec.inputs, layers)


def read_parameter(leaf: Leaf, tensors: Weights, sharding: NamedSharding | None) -> jax.Array:
    """One parameter, on one device or on those of a sharding: each device reads its own part."""
    if not leaf.tensor.name:
        with contextlib.nullcontext() if sharding is None else jax.set_mesh(sharding.mesh):  # type: ignore[arg-type]
            return leaf.spec.init(jax.random.key(0), leaf.spec.shape, sharding)
    part = partial(_part, leaf, tensors)
    if sharding is None:
        array = jax.device_put(part((slice(None),) * len(leaf.spec.shape)))  # jnp.asarray would copy
    else:
        array = jax.make_array_from_callback(leaf.spec.shape, sharding, part)
    return array.block_until_ready()


def _part(leaf: Leaf, tensors: Weights, index: tuple[slice, ...]) -> np.ndarray:
    """The part of a parameter that one device holds, float32; rows that pad the vocabulary are zeros."""
    shape = [len(range(size)[axis]) for axis, size in zip(index, leaf.spec.shape, strict=True)]
    part = _empty(shape, zeros=bool(leaf.spec.padding))
    leading, inner = leaf.spec.shape[: leaf.leading], index[leaf.leading :]
    names = list(np.array(leaf.names).reshape(leading)[index[: leaf.leading]].ravel())
    rows = part.reshape(len(names), *shape[leaf.leading :])

    def copy(row: int, name: str):
        view = leaf.view(tensors[name])[inner]
        unpadded: tuple[slice | EllipsisType, ...] = (..., *map(slice, view.shape))
        _copy(view, rows[row, ...][unpadded])
        tensors.release(name)

    if part.nbytes < 1 << 20 or len(names) == 1:
        list(map(copy, range(len(names)), names))
    else:  # numpy copies without the interpreter's lock
        with ThreadPoolExecutor() as pool:
            list(pool.map(copy, range(len(names)), names))
    if leaf.tensor.factor != 1:
        part *= np.float32(leaf.tensor.factor)
    return part


def _empty(shape: Sequence[int], zeros: bool) -> np.ndarray:
    """A float32 array whose first byte stands where jax can take it over instead of copying it."""
    size = int(np.prod(shape, dtype=np.int64)) * 4
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + size].view(np.float32).reshape(shape)
    if zeros:
        array[...] = 0
    return array


def _copy(source: np.ndarray, target: np.ndarray, block: int = 8):
    """Copies source to target; a transposed source in blocks of columns, which stay in the processor's cache (M31: 2.5
    times faster)."""
    if source.ndim < 2 or source.flags.c_contiguous:
        target[...] = source
        return
    for start in range(0, source.shape[-1], block):
        target[..., start : start + block] = source[..., start : start + block]


def entries(model_leaves: list[Leaf], params: PyTree) -> list[Entry]:
    """Name, dtype, shape of every tensor, and a function that assembles it out of the parameters that it holds."""
    holders: dict[str, list[tuple[Leaf, jax.Array, int]]] = {}
    for leaf, values in zip(model_leaves, jax.tree.leaves(params), strict=True):
        for row, name in enumerate(leaf.names):
            holders.setdefault(name, []).append((leaf, values, row))
    return [(name, np.dtype(np.float32), rows[0][0].shape, partial(assemble, rows)) for name, rows in holders.items()]


def counters(model_leaves: list[Leaf]) -> list[Entry]:
    """The tensors, int64 [], in which torch counts the batches behind a running mean; here nothing does."""
    means = [leaf.tensor.name for leaf in model_leaves if leaf.spec.running and leaf.tensor.name.endswith(_MEAN)]
    return [
        (name.removesuffix(_MEAN) + _COUNTER, np.dtype(np.int64), (), partial(np.zeros, (), np.int64)) for name in means
    ]


def assemble(rows: list[tuple[Leaf, jax.Array, int]]) -> np.ndarray:
    """A tensor out of the rows of all the parameters that it holds."""
    tensor = np.zeros(rows[0][0].shape, np.float32)
    for leaf, values, row in rows:
        layer = np.asarray(values[np.unravel_index(row, leaf.spec.shape[: leaf.leading])] if leaf.leading else values)
        view = leaf.view(tensor)
        view[...] = layer[tuple(map(slice, view.shape))]
        if leaf.tensor.factor != 1:
            view /= np.float32(leaf.tensor.factor)
    return tensor
