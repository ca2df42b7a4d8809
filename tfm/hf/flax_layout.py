"""How the Flax classes that transformers 5 removed kept their parameters: a nested dict, in flax_model.msgpack.

The path of a parameter is torch's name, split at the dots, so that layers are numbered by strings; the last word may
differ:

    weight of a linear map    kernel, torch's weight transposed: [in, out], but [out, in] for GPT-2
    weight of a convolution   kernel [h, w, in, out], torch's is [out, in, h, w]
    weight of a norm          scale; RMS norms keep weight
    weight of a table         embedding
"""

import functools
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict

from tfm.hf.parameters import A, Leaf, entries
from tfm.hf.tensors import AGAIN, POINTER, PULL, Entry, Weights
from tfm.options.json_text import read_object
from tfm.params import PyTree

SINGLE, INDEX = "flax_model.msgpack", "flax_model.msgpack.index.json"
LAST_WORDS = {"kernel": "weight", "scale": "weight", "embedding": "weight"}
Keys = tuple[str, ...]
Parameter = np.ndarray | jax.Array


class Layout(NamedTuple):
    """Where the parameters of a model are in the nested dict.

    specs: its spec tree
    leaves: its parameters, with torch's names
    prefix: what those begin with and a bare model's do not
    rms: its norms are RMS norms
    unused: a pattern of the names of tensors that are copies or constants
    """

    specs: PyTree
    leaves: list[Leaf]
    prefix: str = ""
    rms: bool = False
    unused: str = "$^"

    def keys(self, leaf: Leaf, name: str) -> Keys:
        """The keys that lead to a tensor."""
        *parents, last = name.removeprefix(self.prefix).split(".")
        if last != "weight":
            return (*parents, last)
        if leaf.path.endswith(".scale"):
            return (*parents, last if self.rms else "scale")
        return (*parents, "kernel" if is_kernel(leaf) else "embedding")

    @property
    def shapes(self) -> dict[Keys, tuple[int, ...]]:
        """The shape of every parameter."""
        return {
            self.keys(leaf, name): (*leaf.shape[2:], *leaf.shape[1::-1]) if is_kernel(leaf) else leaf.shape
            for leaf in self.leaves
            for name in leaf.names
        }

    def nest(self, params: PyTree) -> dict:
        """Parameters -> the nested dict; under `jit`, too."""
        if any(isinstance(value, jax.core.Tracer) for value in jax.tree.leaves(params)):
            return self._nest_traced(params)
        by_name = {name: leaf for leaf in self.leaves for name in leaf.names}
        tree: dict = {}
        for name, _, _, assemble in entries(self.leaves, params):
            leaf = by_name[name]
            *parents, last = self.keys(leaf, name)
            node = functools.reduce(lambda node, key: node.setdefault(key, {}), parents, tree)
            node[last] = jnp.asarray(flax_kernel(assemble()) if is_kernel(leaf) else assemble())
        return tree

    def _nest_traced(self, params: PyTree) -> dict:
        """See `nest`: `take` moves numbers and scales them, so its transpose moves them back and scales them again."""
        shapes = {keys: jax.ShapeDtypeStruct(shape, jnp.float32) for keys, shape in self.shapes.items()}
        values = [
            value / leaf.tensor.factor**2 for leaf, value in zip(self.leaves, jax.tree.leaves(params), strict=True)
        ]
        transpose = jax.linear_transpose(self.take, unflatten_dict(shapes))
        (tree,) = transpose(jax.tree.unflatten(jax.tree.structure(self.specs), values))
        return tree

    def entries(self, tree: Mapping) -> list[Entry]:
        """The tensors of torch that a nested dict holds, with the dtypes of its parameters."""
        values = dict(flat(tree))
        tensors: dict[str, Entry] = {}
        for leaf in self.leaves:
            for name in leaf.names:
                value = values.get(self.keys(leaf, name))
                if value is not None:
                    tensors[name] = (name, np.dtype(value.dtype), leaf.shape, partial(_torch_array, leaf, value))
        return list(tensors.values())

    def check(self, tree: Mapping, complete: bool = True) -> None:
        """Raises ValueError where parameters are missing, too many, or of another shape.

        Copies of parameters pass; with complete=False, parameters may be missing.
        """
        shapes, required = {keys: np.shape(value) for keys, value in flat(tree)}, self.shapes
        for keys in required.keys() - shapes.keys() if complete else ():
            raise ValueError(
                f"params lack {'.'.join(keys)}, of shape {required[keys]}; give the whole tree of this model"
            )
        for keys in shapes.keys() - required.keys():
            if not re.search(self.unused, torch_name(keys)):
                raise ValueError(f"params have {'.'.join(keys)}, which this model has not; leave it out")
        for keys, shape in required.items():
            if shapes.get(keys, shape) != shape:
                raise ValueError(
                    f"params have {'.'.join(keys)} of shape {shapes[keys]} instead of {shape}; "
                    "are they of another model?"
                )

    def take(self, tree: Mapping) -> PyTree:
        """The nested dict -> parameters; under `jit` and `grad`, too. Raises ValueError as `check` does."""
        self.check(tree)
        values = dict(flat(tree))
        params = [self._parameter(leaf, values) for leaf in self.leaves]
        return jax.tree.unflatten(jax.tree.structure(self.specs), params)

    def _parameter(self, leaf: Leaf, values: Mapping[Keys, Parameter]) -> jax.Array:
        """One parameter out of the values of a nested dict; rows that pad the vocabulary are zeros."""
        tensors = [jnp.asarray(values[self.keys(leaf, name)]) for name in leaf.names]
        if leaf.tensor.factor != 1 or len({tensor.dtype for tensor in tensors}) > 1:
            tensors = [tensor.astype(jnp.float32) for tensor in tensors]
        layers = [leaf.view(torch_kernel(tensor) if is_kernel(leaf) else tensor) for tensor in tensors]
        array = jnp.stack(layers) if leaf.stacked else layers[0]
        padding = [(0, size - unpadded) for size, unpadded in zip(leaf.spec.shape, array.shape, strict=True)]
        array = jnp.pad(array, padding) if padding else array
        return array * jnp.asarray(leaf.tensor.factor, array.dtype) if leaf.tensor.factor != 1 else array


def torch_name(keys: Keys) -> str:
    """The keys that lead to a parameter -> torch's name, without the prefix that a bare model lacks."""
    *parents, last = ".".join(keys).replace("/", ".").split(".")
    return ".".join((*parents, LAST_WORDS.get(last, last)))


def _torch_array(leaf: Leaf, value: Parameter) -> np.ndarray:
    """A parameter of a nested dict -> the tensor that holds it."""
    return torch_kernel(np.asarray(value)) if is_kernel(leaf) else np.asarray(value)


def is_kernel(leaf: Leaf) -> bool:
    """Whether a parameter is the kernel of a linear map, as the output table of a language model is."""
    return bool(leaf.inputs) or leaf.path.rpartition(".")[2] == "table"


def flax_kernel(kernel: A) -> A:
    """torch's kernel [out, in, ...] -> Flax's [..., in, out]."""
    return kernel.transpose(*range(2, kernel.ndim), 1, 0)


def torch_kernel(kernel: A) -> A:
    """Flax's kernel [..., in, out] -> torch's [out, in, ...]."""
    return kernel.transpose(-1, -2, *range(kernel.ndim - 2))


def flat(tree: Mapping, keys: Keys = ()) -> Iterator[tuple[Keys, Parameter]]:
    """Every value of a nested dict, with the keys that lead to it."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, (*keys, str(key)))
        else:
            yield (*keys, str(key)), value


class Msgpack(Weights):
    """The weights of a folder of Flax by torch's names, all in memory. Raises ValueError if a file is faulty."""

    def __init__(self, folder: str | Path):
        self.files = _files(Path(folder))
        for path in self.files:
            for keys, value in flat(_restored(path)):
                if not isinstance(value, np.ndarray):
                    raise ValueError(f"{path} has {'.'.join(keys)}, which is no array; {AGAIN}")
                self[torch_name(keys)] = torch_kernel(value) if keys[-1].endswith("kernel") else value

    def release(self, name: str) -> None:
        """Nothing: a file is read at once."""


def _files(folder: Path) -> list[Path]:
    """The weight files of a folder."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    try:
        names = read_object(folder / INDEX)["weight_map"].values()
        files = [folder / name for name in sorted(set(names)) if name == Path(name).name and name.endswith(".msgpack")]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / INDEX} has no weight_map from parameters to files; {AGAIN}") from error
    for path in files:
        if not path.is_file():
            raise ValueError(f"{folder / INDEX} names {path.name}, which is missing beside it; download that file, too")
    return files


def _restored(path: Path) -> Mapping:
    """The nested dict in a file."""
    from flax import serialization

    data = path.read_bytes()
    if data.startswith(POINTER):
        raise ValueError(f"{path} holds no parameters; {PULL}")
    try:
        tree = serialization.msgpack_restore(data)
    except Exception as error:  # damaged bytes may raise anything
        raise ValueError(f"{path} is cut off or not of Flax ({error or type(error).__name__}); {AGAIN}") from error
    if not isinstance(tree, Mapping) or not tree:
        raise ValueError(f"{path} holds no parameters; {AGAIN}")
    return tree
