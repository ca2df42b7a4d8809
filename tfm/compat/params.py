"""Parameters as a nested dict: out of a folder, in another dtype, and counted as those that a model needs."""

from collections.abc import Mapping

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from flax.traverse_util import unflatten_dict
from jax import Array
from jax.typing import DTypeLike

from tfm.hf.flax_layout import Keys, Layout, Parameter, flat, flax_kernel, is_kernel
from tfm.hf.folder import Opened, initial_value
from tfm.hf.parameters import Leaf, entries

# Dtypes that parameters keep; others become float32.
KEPT = tuple(map(np.dtype, (np.float32, np.float16, ml_dtypes.bfloat16)))


def read_params(layout: Layout, opened: Opened, seed: int, initialize: bool = True) -> dict:
    """The parameters in a folder, with the dtypes that they have there.

    Those that the folder lacks start from new values, which depend on the seed; with initialize=False they are left
    out.
    """
    params: dict[Keys, Array] = {}
    new = [leaf for leaf in layout.leaves if leaf.path in opened.reinitialized]
    for leaf, stored in zip(layout.leaves, opened.leaves, strict=True):
        if initialize and leaf.path in opened.reinitialized:
            continue
        for name, stored_name in zip(leaf.names, stored.names, strict=True):
            keys = layout.keys(leaf, name)
            if keys not in params and stored_name in opened.tensors:
                tensor = opened.tensors[stored_name]
                if tensor.shape == leaf.shape:
                    params[keys] = _flax_array(leaf, tensor)
                opened.tensors.release(stored_name)
    return unflatten_dict(params | (_new_params(layout, new, seed) if initialize else {}))


def _new_params(layout: Layout, leaves: list[Leaf], seed: int) -> dict[Keys, Array]:
    """New values of parameters."""
    by_name = {name: leaf for leaf in leaves for name in leaf.names}
    tensors = entries(leaves, [initial_value(leaf, seed) for leaf in leaves])
    return {
        layout.keys(by_name[name], name): _flax_array(by_name[name], assemble()) for name, _, _, assemble in tensors
    }


def _flax_array(leaf: Leaf, tensor: np.ndarray) -> Array:
    """A copy of a tensor of torch, as the parameter that it holds."""
    dtype: DTypeLike = tensor.dtype if tensor.dtype in KEPT else jnp.float32
    return jnp.array(flax_kernel(tensor) if is_kernel(leaf) else tensor, dtype)


def cast(params: Mapping, dtype: DTypeLike, mask: Mapping | None = None) -> dict:
    """Floating-point parameters in another dtype; with a mask, a nested dict of bools, those where it is True."""
    masked = None if mask is None else dict(flat(mask))

    def converted(keys: Keys, value: Parameter) -> Array:
        value = jnp.asarray(value)
        is_cast = jnp.issubdtype(value.dtype, jnp.floating) and (masked is None or masked[keys])
        return value.astype(dtype) if is_cast else value

    return unflatten_dict({keys: converted(keys, value) for keys, value in flat(params)})


def completed(params: Mapping, new: Mapping) -> dict:
    """Parameters, and new ones where they lack some."""
    return unflatten_dict({**dict(flat(new)), **dict(flat(params))})
