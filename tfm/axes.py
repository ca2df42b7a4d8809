"""Axes have one-letter names; one table says what a letter means and over which mesh axes it may be spread.

The same letters stand in einsum strings, in docstrings and in the parameter specs, so that a shape is written one way
everywhere.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

from tfm.options.errors import nearest_divisor


class Axis(NamedTuple):
    """What a letter stands for, and the mesh axes that may divide it, in order.

    An axis that `may_replicate` is kept whole where the mesh does not divide it; any other is an error.
    """

    meaning: str
    mesh: tuple[str, ...] = ()
    may_replicate: bool = False


# Neighbouring devices are neighbours along the last one: parts of a layer talk more than parts of a text, and those
# more than rows.
MESH_AXES = ("data", "fsdp", "context", "tensor")

# An axis between `fsdp` and `context` that a mesh has where it is asked for: rows and experts are spread over it.
EXPERT = "expert"

AXES = {
    "B": Axis("batch", ("data", "fsdp", "expert")),
    "T": Axis("query position", ("context",)),
    "Q": Axis("position between blocks", ("context", "tensor"), may_replicate=True),
    "I": Axis("position of a patch", ("context",), may_replicate=True),
    "S": Axis("key position"),
    "M": Axis("predicted position", ("context",), may_replicate=True),
    "D": Axis("width", ("fsdp",)),
    "E": Axis("width again, on the output side of a width-to-width matrix"),
    "U": Axis("width of the embeddings", ("fsdp",)),
    "N": Axis("heads: K times G"),
    "K": Axis("key/value heads", ("tensor",), may_replicate=True),
    "G": Axis("query heads per key/value head", ("tensor",), may_replicate=True),
    "H": Axis("head size"),
    "F": Axis("feed-forward", ("tensor",)),
    "X": Axis("experts", ("expert",)),
    "V": Axis("vocabulary, padded", ("tensor",)),
    "P": Axis("rows of the position table"),
    "O": Axis("offsets of rows and columns of patches"),
    "Y": Axis("token types"),
    "C": Axis("classes"),
    "L": Axis("layers"),
}


def make_mesh(data: int = -1, fsdp: int = 1, tensor: int = 1, context: int = 1, devices=None, expert: int = 1) -> Mesh:
    """An Explicit mesh of `devices` (default: all); one size may be -1, which takes the devices that remain.

    Raises ValueError where the sizes do not multiply to the number of devices.
    """
    devices = np.asarray(jax.devices() if devices is None else devices).ravel()
    sizes = {"data": data, "fsdp": fsdp, "tensor": tensor, "context": context}
    names: tuple[str, ...] = MESH_AXES
    if expert != 1:
        sizes, names = sizes | {EXPERT: expert}, (*MESH_AXES[:2], EXPERT, *MESH_AXES[2:])
    wild = [name for name, size in sizes.items() if size == -1]
    wrong = [f"mesh.{name}={size}" for name, size in sizes.items() if size < 1 and size != -1]
    if wrong or len(wild) > 1:
        raise ValueError(
            f"{' '.join(wrong) or 'more than one -1'}: mesh sizes are 1 or more, and one of them may be -1"
        )
    product = math.prod(size for size in sizes.values() if size != -1)
    if wild:
        sizes[wild[0]] = devices.size // product
    if math.prod(sizes.values()) != devices.size:
        shown = " ".join(f"mesh.{name}={size}" for name, size in sizes.items() if name not in wild)
        raise ValueError(f"{shown} must {'divide' if wild else 'multiply to'} the {devices.size} devices here")
    shape = tuple(sizes[name] for name in names)
    return Mesh(arranged(devices, shape, names), names, axis_types=(AxisType.Explicit,) * len(names))


def arranged(devices: np.ndarray, shape: tuple[int, ...], names: Sequence[str] = MESH_AXES) -> np.ndarray:
    """Devices in the shape of a mesh with axes of these names: those of one process or slice side by side, whose wires
    are fast, and slices along the outer axes.

    Raises ValueError where the slices do not divide the shape.
    """
    from jax.experimental import mesh_utils

    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices > 1:
        outer, left = list[int](), slices
        for size in shape:
            outer.append(math.gcd(size, left))
            left //= outer[-1]
        if left > 1:
            sizes = " ".join(f"mesh.{name}={size}" for name, size in zip(names, shape, strict=True))
            raise ValueError(f"{sizes} must leave the {slices} slices of devices whole; try mesh.data={slices}")
        inner = [size // of for size, of in zip(shape, outer, strict=True)]
        return mesh_utils.create_hybrid_device_mesh(inner, outer, devices.tolist(), allow_split_physical_axes=True)
    if devices[0].platform == "tpu":
        return mesh_utils.create_device_mesh(shape, devices.tolist(), allow_split_physical_axes=True)
    return devices.reshape(shape)  # as jax lists them, process by process


def platform() -> str:
    """What the program that is traced is for: the platform of the mesh around it, which may be absent here, else of the
    default device."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    name = device.platform if device else jax.default_backend()
    return "gpu" if name in ("cuda", "rocm") else name


def compute_capability(device) -> str:
    """That of an NVIDIA GPU, such as 9.0, which the name of an absent one says; "" of other devices and of None."""
    described = re.search(r"compute capability (\d+\.\d+)", getattr(device, "device_kind", ""))
    return described[1] if described else getattr(device, "compute_capability", "")


def is_plain_cpu() -> bool:
    """Whether the program that is traced is for a CPU, and not inside a `shard_map`."""
    return platform() == "cpu" and not jax.sharding.get_abstract_mesh().manual_axes


def partition(axes: str, shape: tuple[int, ...], mesh: Mesh, name: str = "") -> PartitionSpec:
    """Where an array with these axes lives: each mesh axis shards the first letter that allows it.

    Raises ValueError where a mesh axis does not divide an axis that may not be replicated instead, with the `name` of
    the array.
    """
    free = {name for name, size in mesh.shape.items() if size > 1}
    spec: list[str | tuple[str, ...] | None] = []
    for letter, size in zip(axes, shape, strict=True):
        axis = AXES[letter] if letter.isupper() else Axis("axis of one variant")
        names = tuple(name for name in axis.mesh if name in free)
        shards = math.prod(mesh.shape[name] for name in names)
        if size % shards and not axis.may_replicate:
            culprit = " * ".join(f"mesh.{name}" for name in names)
            remedy = f"{nearest_divisor(shards, size)}, or a size of {max(1, round(size / shards)) * shards}"
            where = f"the {axis.meaning} axis of size {size}" + (f" of {name}" if name else "")
            raise ValueError(f"{culprit} = {shards} must divide {where}; try {remedy}")
        if size % shards or not names:
            spec.append(None)
        else:
            free -= set(names)
            spec.append(names if len(names) > 1 else names[0])
    return PartitionSpec(*spec)
