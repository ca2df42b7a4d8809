"""How the Flax classes that transformers 5 removed kept their parameters: a nested dict, in files named flax_model.msgpack.

The path of a parameter is torch's name, split at the dots, so that layers are numbered by strings; only the last word may differ:

    weight of a linear map    kernel, which is always torch's weight turned: [in, out], but [out, in] for GPT-2
    weight of a norm          scale; RMS norms keep weight
    weight of a table         embedding
"""

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tfm.hf.names import Leaf, entries
from tfm.hf.tensors import AGAIN, POINTER, PULL, Tensors

SINGLE, INDEX = "flax_model.msgpack", "flax_model.msgpack.index.json"
Place = tuple[str, ...]


class Layout(NamedTuple):
    """Where each parameter of a model stands.

    specs: its spec tree
    leaves: its parameters, with torch's names
    prefix: what those begin with and a bare model's do not
    rms: its norms are RMS norms
    """

    specs: Any
    leaves: list[Leaf]
    prefix: str = ""
    rms: bool = False

    def place(self, leaf: Leaf, name: str) -> Place:
        """The path of a tensor."""
        *parts, last = name.removeprefix(self.prefix).split(".")
        if last != "weight":
            return (*parts, last)
        if leaf.path.endswith(".scale"):
            return (*parts, last if self.rms else "scale")
        return (*parts, "kernel" if kernel(leaf) else "embedding")

    @property
    def shapes(self) -> dict[Place, tuple[int, ...]]:
        """The shape of every parameter, by its path."""
        return {
            self.place(leaf, name): leaf.shape[::-1] if kernel(leaf) else leaf.shape
            for leaf in self.leaves
            for name in leaf.names
        }  # fmt: skip

    def nest(self, params: Any) -> dict:
        """Our parameters -> the nested dict."""
        turned = {name: (self.place(leaf, name), kernel(leaf)) for leaf in self.leaves for name in leaf.names}
        tree: dict = {}
        for name, _, _, make in entries(self.leaves, params):
            (*parts, last), turn = turned[name]
            part = functools.reduce(lambda tree, name: tree.setdefault(name, {}), parts, tree)
            part[last] = jnp.asarray(make().T if turn else make())
        return tree

    def check(self, tree: Mapping) -> None:
        """Raises ValueError where parameters are missing, too many, or of another shape."""
        given, wanted = {path: np.shape(value) for path, value in flat(tree)}, self.shapes
        for path in wanted.keys() - given.keys():
            raise ValueError(
                f"params lack {'.'.join(path)}, of shape {wanted[path]}; give the whole tree of this model"
            )
        for path in given.keys() - wanted.keys():
            raise ValueError(f"params have {'.'.join(path)}, which this model has not; leave it out")
        for path, shape in wanted.items():
            if given[path] != shape:
                raise ValueError(
                    f"params have {'.'.join(path)} of shape {given[path]} instead of {shape}; are they of another model?"
                )

    def take(self, tree: Mapping) -> Any:
        """The nested dict -> our parameters; under `jit` and `grad`, too. Raises ValueError as `check` does."""
        self.check(tree)
        given = dict(flat(tree))

        def one(leaf: Leaf) -> jax.Array:
            tensors = (jnp.asarray(given[self.place(leaf, name)]) for name in leaf.names)
            layers = [leaf.view(tensor.T if kernel(leaf) else tensor) for tensor in tensors]
            values = jnp.stack(layers) if leaf.stacked else layers[0]
            values = jnp.pad(
                values, [(0, whole - size) for whole, size in zip(leaf.spec.shape, values.shape, strict=True)]
            )
            return values * jnp.asarray(leaf.theirs.factor, values.dtype) if leaf.theirs.factor != 1 else values

        return jax.tree.unflatten(jax.tree.structure(self.specs), [one(leaf) for leaf in self.leaves])


def kernel(leaf: Leaf) -> bool:
    """Whether it is the kernel of a linear map, as the table is that meets the last hidden states."""
    return bool(leaf.inputs) or leaf.path.rpartition(".")[2] == "table"


def flat(tree: Mapping, path: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every value of a nested dict, with its path."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, (*path, str(name)))
        else:
            yield (*path, str(name)), value


def weights(folder: str | Path) -> Tensors:
    """The weights of a folder: safetensors, or where there are none, those of Flax."""
    names = {path.name for path in Path(folder).glob("*")}
    old = names & {SINGLE, INDEX} and not any(
        name.endswith((".safetensors", ".safetensors.index.json")) for name in names
    )
    return Msgpack(folder) if old else Tensors(folder)


class Msgpack(Tensors):
    """The weights of a folder of Flax by torch's names; all of them are in memory. ValueError if faulty."""

    def __init__(self, folder: str | Path):
        last = {"kernel": "weight", "scale": "weight", "embedding": "weight"}
        self.files = _files(Path(folder))
        for path in self.files:
            for place, value in flat(_restored(path)):
                *parts, name = ".".join(place).replace("/", ".").split(".")
                if not isinstance(value, np.ndarray):
                    raise ValueError(f"{path} has {'.'.join(place)}, which is no array; {AGAIN}")
                self[".".join((*parts, last.get(name, name)))] = value.T if name == "kernel" else value

    def release(self, name: str) -> None:  # noqa: D102
        pass  # they did not come one by one


def _files(folder: Path) -> list[Path]:
    """The weight files of a folder."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    try:
        names = json.loads((folder / INDEX).read_text())["weight_map"].values()
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
    except Exception as error:  # whatever the bytes of others lead to
        raise ValueError(f"{path} is cut off or not of Flax ({error or type(error).__name__}); {AGAIN}") from error
    if not isinstance(tree, Mapping) or not tree:
        raise ValueError(f"{path} holds no parameters; {AGAIN}")
    return tree
