"""Where arrays live on an Explicit mesh: their axes are replicated, sharded, or moved to where another array is.

Without a mesh every function here returns its array unchanged.
"""

import contextlib
import math
from collections.abc import Iterable

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, reshard

from tfm.axes import AXES, partition


def spec_of(x: Array | jax.ShapeDtypeStruct) -> tuple:
    """The mesh axes of every axis of x; None for a replicated axis."""
    spec = tuple(jax.typeof(x).sharding.spec)
    return spec + (None,) * (x.ndim - len(spec))


def mesh_axes(spec: Iterable) -> tuple[str, ...]:
    """The names of the mesh axes in a partition spec, in order."""
    return tuple(name for axes in spec if axes for name in (axes if isinstance(axes, tuple) else (axes,)))


def named_sharding(x: Array, y: Array, *spec) -> NamedSharding | None:
    """A sharding on the mesh of x or y; None where neither is sharded."""
    for operand in (x, y):
        if any(spec_of(operand)):
            return NamedSharding(jax.typeof(operand).sharding.mesh, PartitionSpec(*spec))
    return None


def shards_of(x: Array | jax.ShapeDtypeStruct, axes: int | None = None) -> int:
    """The number of parts that the mesh cuts x into along its first `axes` axes; by default, along all."""
    spec = spec_of(x)[:axes]
    return math.prod(map(jax.typeof(x).sharding.mesh.shape.__getitem__, mesh_axes(spec))) if any(spec) else 1


def unshard_fsdp(parameter: Array) -> Array:
    """A parameter [...] as a layer uses it, of the same shape: replicated over `fsdp`, still sharded over `tensor`."""
    spec = spec_of(parameter)
    if "fsdp" not in spec:
        return parameter
    replicated = (None if axes == "fsdp" else axes for axes in spec)
    return reshard(parameter, named_sharding(parameter, parameter, *replicated))


def shard_axis(x: Array, mesh_axis: str | tuple[str, ...] | None, axis: int = 1) -> Array:
    """x with one axis (default: the length) sharded over mesh axes; None replicates it."""
    spec = spec_of(x)
    return x if spec[axis] == mesh_axis else reshard(x, PartitionSpec(*spec[:axis], mesh_axis, *spec[axis + 1 :]))


def shard_like(x: Array, rows: Array, axis: int = 0) -> Array:
    """x with an axis sharded like the first axis of rows [B,...]."""
    return shard_axis(x, spec_of(rows)[0], axis)


def replicate_length(x: Array) -> Array:
    """x [B,T,...] with its length replicated."""
    return x if spec_of(x)[1] is None else shard_axis(x, None)


def replicate(x: Array) -> Array:
    """x on every device in full."""
    return reshard(x, PartitionSpec()) if any(spec_of(x)) else x


def first_entries(x: Array, count: int) -> Array:
    """x [...,N] -> [...,count], whole on every device along it: a mesh that divides N may not divide the count."""
    return shard_axis(x, None, x.ndim - 1)[..., :count]


def on_mesh(x: Array) -> Array:
    """x on every device of the mesh in use: an array of numpy is on none, and meets no other in one operation."""
    return reshard(x, PartitionSpec()) if jax.sharding.get_abstract_mesh().shape else x


def shard_batch(rows: Array) -> Array:
    """rows [B,...] over the devices that share a batch, where their count divides it."""
    mesh = jax.sharding.get_abstract_mesh()
    names = tuple(name for name in AXES["B"].mesh if mesh.shape.get(name, 1) > 1)
    if not names or len(rows) % math.prod(mesh.shape[name] for name in names):
        return rows
    return reshard(rows, PartitionSpec(names))


def reshape_rows(x: Array, *shape: int) -> Array:
    """x [B,...] in another shape, its first axis sharded as it is and the others not at all."""
    return jnp.reshape(x, shape, out_sharding=named_sharding(x, x, spec_of(x)[0], *(None,) * (len(shape) - 1)))


def regroup_rows(x: Array, rows: int) -> Array:
    """x [N*B,T,...] -> [B,N*T,...] of B rows, and back: N neighbours share a row, on the devices of the rows."""
    if len(x) == rows:
        return x
    spec, shape = spec_of(x), (rows, len(x) * x.shape[1] // rows, *x.shape[2:])
    return jnp.reshape(x, shape, out_sharding=named_sharding(x, x, spec[0], None, *spec[2:]))


def fold_rows(x: Array) -> Array:
    """x [B,N,T] -> [B*N,T]: the rows of an example are neighbours, on the devices of the example."""
    shape = (x.shape[0] * x.shape[1], *x.shape[2:])
    spec = spec_of(x)
    return jnp.reshape(x, shape, out_sharding=named_sharding(x, x, spec[0], *spec[2:]))


def unfold_rows(x: Array, like: Array) -> Array:
    """x [B*N,...] -> [B,N,...], sharded like the examples [B,N,...]."""
    rows = shard_like(x, like)
    spec = spec_of(rows)
    return jnp.reshape(
        rows, (*like.shape[:2], *x.shape[1:]), out_sharding=named_sharding(rows, rows, spec[0], None, *spec[1:])
    )


def scatter_sequence(x: Array, letter: str = "Q") -> Array:
    """x [B,T,D] whose length is sharded as the letter says, if an Explicit mesh divides it. By default as between
    blocks: over `tensor` too.

    Norms, dropout and saved activations then take 1/tensor of the memory (Korthikanti et al. 2022, section 4.2.2).
    """
    mesh = jax.typeof(x).sharding.mesh
    if mesh.empty or any(axis_type != AxisType.Explicit for axis_type in mesh.axis_types):
        return x
    mesh_axis = partition(letter, x.shape[1:2], mesh)[0]
    return x if mesh_axis is None else shard_axis(x, mesh_axis)


def shard_patches(x: Array) -> Array:
    """x [B,T,D] of images: its length is sharded over `context`, if the mesh divides it."""
    return scatter_sequence(x, "I")


def gather_sequence(x: Array) -> Array:
    """x [B,T,D] as a layer reads it: its length is no longer sharded over `tensor`, which shards the layer."""
    mesh_axis = spec_of(x)[1]
    return shard_axis(x, {("context", "tensor"): "context", "tensor": None}.get(mesh_axis, mesh_axis))


def take_positions(x: Array, positions: Array) -> Array:
    """x [B,S,...] at positions [B or 1, T] -> [B,T,...], sharded like the rows of x and the positions."""
    of_positions, of_rows = spec_of(positions)[1], spec_of(x)[1]
    index = positions if of_positions is None else shard_axis(positions, None)
    rows = x if of_rows is None else shard_axis(x, None)
    y = jnp.take_along_axis(rows, jnp.expand_dims(index, range(2, x.ndim)), axis=1)
    return y if of_positions is None else shard_axis(y, of_positions)


def positions_like(x: Array) -> Array:
    """x [B,T,...] -> positions 0..T-1 as [1,T], sharded like the length of x."""
    return jnp.arange(x.shape[1], out_sharding=named_sharding(x, x, spec_of(x)[1]))[None]


def mesh_of(model) -> contextlib.AbstractContextManager:
    """The context in which a model that lives on a mesh is used; an empty context for any other model."""
    mesh = getattr(jax.tree.leaves(model)[0].sharding, "mesh", None)
    return jax.set_mesh(mesh) if isinstance(mesh, Mesh) else contextlib.nullcontext()
