"""The data sheets of devices."""

from types import SimpleNamespace

import jax
import pytest

from train.devices import specs, topology


@pytest.mark.parametrize(
    ("kind", "tera"),
    [
        ("Tesla T4", 65),
        ("NVIDIA L4", 121),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H200", 989),
        ("TPU v4", 275),
        ("TPU v5 lite", 197),
        ("TPU v5e", 197),
        ("TPU v5", 459),
        ("TPU v5p", 459),
        ("TPU v6 lite", 918),
        ("TPU v6e", 918),
        ("cpu", None),
        ("NVIDIA L40S", None),
        ("TPU v4 lite", None),
    ],
)
def test_peak_flops(kind, tera):
    assert specs.peak_flops(kind) == (None if tera is None else tera * 1e12)


@pytest.mark.parametrize(("name", "expected"), [("t4:1", False), ("a100:1", True), ("v5e:1x1", True)])
def test_who_has_bfloat16(name, expected):
    """By the compute capability of a GPU, which a device that is there says itself."""
    stand_in = topology.parse(name).stand_ins[0]
    assert specs.has_bfloat16(stand_in) == expected
    device = SimpleNamespace(device_kind="Tesla V100-SXM2-16GB", compute_capability="7.0" if not expected else "8.9")
    assert specs.has_bfloat16(device) == expected


def test_device_table():
    """Every device can read its whole memory in less than a tenth of a second, and multiplies at least 100 times while
    it reads a byte."""
    for name, spec in specs.DEVICE_SPECS.items():
        assert spec.memory / spec.bandwidth < 0.1, name
        assert spec.flops / spec.bandwidth > 100, name
        assert spec.link < spec.bandwidth, name
    assert specs.memory_bytes(jax.devices()[0]) is None, "a CPU says nothing"
