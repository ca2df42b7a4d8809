"""Any model of this library, or of the same form, as a `flax.nnx.Module`: for `nnx.Optimizer`, `nnx.jit` and the other
tools of nnx."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from flax import nnx
from flax.nnx import reprlib

from tfm.params import PyTree

ARRAYS = (jax.Array, np.ndarray, jax.ShapeDtypeStruct)


class Module(nnx.Module):
    """A pure function of (params, config, ...) and its params as a module of nnx; every array of params is an
    `nnx.Param`.

    `Module(function, config, params)(*args)` is `function(params, config, *args)`. The arrays are shared, never copied:
    where a jitted function of yours donates them, they are gone here too. `variables` is params with an `nnx.Param` for
    each array. Dropout needs no state: pass `key=rngs.dropout()` with `rngs = nnx.Rngs(0)`. Raises TypeError where
    params are not a tree of arrays.
    """

    def __init__(self, function: Callable[..., Any], config: object, params: PyTree):
        if not callable(function):
            raise TypeError(f"function is a {type(function).__name__}, not a function; pass one such as tfm.masked_lm")
        named_arrays(params)  # raises
        self.function = function
        self.config = config
        self.variables = nnx.data(jax.tree.map(nnx.Param, params))

    def __call__(self, *args, **kwargs) -> Any:
        """Whatever the function returns for these arguments, which follow params and config."""
        return self.function(self.params, self.config, *args, **kwargs)

    @property
    def params(self) -> PyTree:
        """The tree of arrays that the function takes. Assigning another moves its arrays in.

        Assignment takes other dtypes and shardings as they are, and raises ValueError for other names or shapes.
        """
        return nnx.as_pure(self.variables)

    @params.setter
    def params(self, params: PyTree) -> None:
        new, old = named_arrays(params), named_arrays(self.params)
        structure: object = jax.tree.structure(params)
        if structure != jax.tree.structure(self.params):
            lacking, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
            raise ValueError(
                f"params is another tree ({type(params).__name__}) than the module's "
                f"({type(self.variables).__name__}): it lacks {len(lacking)} arrays {lacking[:2]} and adds "
                f"{len(added)} {added[:2]}; make a new tfm.Module for it"
            )
        for name in old:
            if old[name].shape != new[name].shape:
                raise ValueError(
                    f"params.{name} has shape {new[name].shape}, the module's {old[name].shape}; "
                    "make a new tfm.Module for it"
                )
        jax.tree.map(lambda variable, array: variable.set_value(array), self.variables, params, is_leaf=is_variable)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "params":  # nnx would refuse a tree of bare arrays before the property sees it
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def __nnx_repr__(self) -> Iterator[reprlib.Object | reprlib.Attr]:
        """One line a parameter; nnx itself would print nested dataclasses without line breaks."""
        function = getattr(self.function, "__name__", type(self.function).__name__)
        yield reprlib.Object(type(self), comment=f" # {function}", kv_sep=": ")
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.params):
            text = f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, ARRAYS) else repr(leaf)
            yield reprlib.Attr(dotted(path), text, use_raw_value=True)


def named_arrays(params: PyTree) -> dict[str, jax.Array | np.ndarray | jax.ShapeDtypeStruct]:
    """The arrays of params by dotted name, in the order of the tree. Raises TypeError for any other leaf, and where
    there is none."""
    leaves = jax.tree_util.tree_leaves_with_path(params, is_leaf=is_variable)
    wrong = [(path, leaf) for path, leaf in leaves if not isinstance(leaf, ARRAYS)]
    if wrong or not leaves:
        path, leaf = wrong[0] if wrong else ((), params)
        where = dotted((jax.tree_util.GetAttrKey("params"), *path))
        raise TypeError(
            f"{where} is a {type(leaf).__name__}, not an array; the order is tfm.Module(function, config, params), "
            "with params from tfm.init(specs, key) or from another tfm.Module"
        )
    return {dotted(path): leaf for path, leaf in leaves}


def dotted(path: tuple) -> str:
    """A path in a tree, such as encoder.blocks.attn.query.kernel."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def is_variable(leaf: object) -> bool:
    """Whether nnx holds this leaf; to jax it is a tree."""
    return isinstance(leaf, nnx.Variable)
