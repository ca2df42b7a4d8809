import re

import jax
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import tfm
from tfm.axes import arranged


def test_letters_name_mesh_axes_that_exist():
    """Lower-case letters are left to variants."""
    for letter, axis in tfm.AXES.items():
        assert len(letter) == 1
        assert letter.isupper()
        assert set(axis.mesh) <= {*tfm.MESH_AXES, "expert"}


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({}, (8, 1, 1, 1)),
        ({"fsdp": 4}, (2, 4, 1, 1)),
        ({"data": 2, "fsdp": -1, "tensor": 2}, (2, 2, 1, 2)),
        ({"data": 1, "tensor": -1}, (1, 1, 1, 8)),
        ({"data": 1, "fsdp": 8}, (1, 8, 1, 1)),
        ({"tensor": 2, "context": 4}, (1, 1, 4, 2)),
        ({"data": 2, "context": -1}, (2, 1, 4, 1)),
    ],
)
def test_make_mesh_fills_in_the_size_that_is_left_open(sizes, expected):
    mesh = tfm.make_mesh(**sizes)
    assert tuple(mesh.shape.items()) == tuple(zip(tfm.MESH_AXES, expected, strict=True))
    assert mesh.axis_types == (AxisType.Explicit,) * 4
    assert sorted(device.id for device in mesh.devices.flat) == sorted(device.id for device in jax.devices())


def test_a_mesh_has_experts_where_they_are_asked_for():
    mesh = tfm.make_mesh(data=2, expert=4)
    assert mesh.shape == {"data": 2, "fsdp": 1, "expert": 4, "context": 1, "tensor": 1}
    assert tfm.partition("BTD", (8, 3, 7), mesh) == P(("data", "expert"), None, None)


def test_make_mesh_of_some_devices():
    devices = jax.devices()[2:4]
    assert list(tfm.make_mesh(tensor=2, devices=devices).devices.flat) == devices


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"data": 3}, "mesh.data=3 mesh.fsdp=1 mesh.tensor=1 mesh.context=1 must multiply to the 8 devices"),
        ({"fsdp": 3}, "mesh.fsdp=3 mesh.tensor=1 mesh.context=1 must divide the 8 devices"),
        ({"fsdp": 16}, "mesh.fsdp=16 mesh.tensor=1 mesh.context=1 must divide the 8 devices"),
        ({"tensor": 0}, "mesh.tensor=0: mesh sizes are 1 or more"),
        ({"data": -2}, "mesh.data=-2: mesh sizes are 1 or more"),
        ({"fsdp": -1}, "more than one -1"),
    ],
)
def test_make_mesh_refuses(sizes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tfm.make_mesh(**sizes)


@pytest.mark.parametrize(
    ("axes", "shape", "expected"),
    [
        ("BT", (4, 5), P(("data", "fsdp"), None)),
        ("BTD", (4, 5, 6), P(("data", "fsdp"), None, None)),  # B has taken fsdp, so D is whole
        ("DF", (6, 8), P("fsdp", "tensor")),
        ("VD", (8, 6), P("tensor", "fsdp")),
        ("LDE", (3, 6, 6), P(None, "fsdp", None)),
        ("DKGH", (6, 4, 2, 3), P("fsdp", "tensor", None, None)),  # K has taken tensor, so G is whole
        ("DKGH", (6, 3, 2, 3), P("fsdp", None, "tensor", None)),
        ("DKGH", (6, 3, 5, 3), P("fsdp", None, None, None)),
        ("BTKGH", (4, 5, 2, 3, 4), P(("data", "fsdp"), None, "tensor", None, None)),
        ("BMV", (4, 3, 8), P(("data", "fsdp"), None, "tensor")),
        ("", (), P()),
        ("rKG", (8, 2, 3), P(None, "tensor", None)),  # an axis of one variant is on every device in full
        ("Ldr", (2, 7, 3), P(None, None, None)),
    ],
)
def test_partition(axes, shape, expected):
    assert tfm.partition(axes, shape, tfm.make_mesh(2, 2, 2)) == expected


@pytest.mark.parametrize(
    ("axes", "shape", "expected"),
    [
        ("BTD", (4, 8, 6), P("data", "context", None)),
        ("BM", (4, 6), P("data", None)),  # too few predicted positions to spread
        ("PD", (8, 6), P(None, None)),
    ],
)
def test_partition_over_context(axes, shape, expected):
    assert tfm.partition(axes, shape, tfm.make_mesh(2, context=4)) == expected


def test_neighbouring_devices_share_a_layer():
    mesh = tfm.make_mesh(2, tensor=2, context=2)
    ids = [[device.id for device in devices] for devices in mesh.devices.reshape(4, 2)]
    assert ids == [[0, 1], [2, 3], [4, 5], [6, 7]]


class Chip:
    """As much of a device as its place in a mesh depends on."""

    platform, device_kind = "gpu", "chip"

    def __init__(self, index, slices):
        self.id, self.slice_index, self.process_index = index, index // (16 // slices), index // 4


@pytest.mark.parametrize(
    ("slices", "shape", "across"),
    [
        (1, (2, 2, 2, 2), (1, 1, 1, 1)),
        (2, (4, 1, 1, 4), (2, 1, 1, 1)),
        (4, (2, 2, 1, 4), (2, 2, 1, 1)),  # more slices than data: the rest along fsdp
    ],
)
def test_slices_meet_along_the_outer_axes(slices, shape, across):
    """And inside a slice devices stand in order."""
    chips = arranged(np.array([Chip(index, slices) for index in range(16)]), shape)
    assert chips.shape == shape
    for axis, count in enumerate(across):
        rows = np.moveaxis(chips, axis, -1).reshape(-1, shape[axis])
        assert all(len({chip.slice_index for chip in row}) == count for row in rows)
    assert [[chip.id for chip in row] for row in chips.reshape(4, 4)] == np.arange(16).reshape(4, 4).tolist()


def test_slices_that_the_mesh_would_cut():
    with pytest.raises(
        ValueError,
        match="mesh.data=1 mesh.fsdp=1 mesh.context=16 mesh.tensor=1 must leave the 3 slices of devices whole",
    ):
        arranged(
            np.array([Chip(index, 4) for index in range(12)] + [Chip(index, 4) for index in range(4)]),
            (1, 1, 16, 1),
        )


def test_partition_ignores_mesh_axes_of_one_device():
    assert tfm.partition("BTD", (3, 5, 7), tfm.make_mesh(devices=jax.devices()[:1])) == P(None, None, None)
    assert tfm.partition("DF", (7, 8), tfm.make_mesh(data=4, tensor=2)) == P(None, "tensor")


@pytest.mark.parametrize(
    ("axes", "shape", "message"),
    [
        ("DF", (15, 8), "mesh.fsdp = 2 must divide the width axis of size 15; try 1"),
        ("BT", (6, 5), "mesh.data * mesh.fsdp = 4 must divide the batch axis of size 6; try 3"),
        ("FD", (9, 8), "mesh.tensor = 2 must divide the feed-forward axis of size 9; try 1"),
    ],
)
def test_partition_refuses_an_axis_that_the_mesh_does_not_divide(axes, shape, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tfm.partition(axes, shape, tfm.make_mesh(2, 2, 2))
