"""A parameter out of the tensors that hold it: each device reads its own part."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from tfm.hf.names import Leaf
from tfm.hf.tensors import Weights


def read_parameter(leaf: Leaf, tensors: Weights, sharding: Sharding | None) -> jax.Array:
    """One parameter, on one device or on those of a sharding."""
    part = partial(_part, leaf, tensors)
    if sharding is None:
        array = jax.device_put(part((slice(None),) * len(leaf.spec.shape)))  # jnp.asarray would copy
    else:
        array = jax.make_array_from_callback(leaf.spec.shape, sharding, part)
    return array.block_until_ready()


def _part(leaf: Leaf, tensors: Weights, index: tuple[slice, ...]) -> np.ndarray:
    """The part of a parameter that one device holds, float32; rows that pad the vocabulary are zeros."""
    bounds = [axis.indices(size)[:2] for axis, size in zip(index, leaf.spec.shape, strict=True)]
    part = _empty(tuple(stop - start for start, stop in bounds), zeros=bool(leaf.spec.padding))
    first, stop = bounds[0] if leaf.stacked else (0, 1)
    names = leaf.names[first:stop]
    inner = tuple(slice(*axis) for axis in bounds[leaf.stacked :])

    def copy(row: int, name: str):
        view = leaf.view(tensors.view(name))[..., *inner]
        target = part[row] if leaf.stacked else part
        unpadded: Any = tuple(slice(0, size) for size in view.shape)
        _copy(view, target[..., *unpadded])
        tensors.release(name)

    if part.nbytes < 1 << 20 or len(names) == 1:
        list(map(copy, range(len(names)), names))
    else:  # numpy copies without the interpreter's lock
        with ThreadPoolExecutor() as pool:
            list(pool.map(copy, range(len(names)), names))
    if leaf.tensor.factor != 1:
        part *= np.float32(leaf.tensor.factor)
    return part


def _empty(shape: tuple[int, ...], zeros: bool) -> np.ndarray:
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
