"""The data sheets of devices."""

import jax
import pytest

from train.devices import specs


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


def test_device_table():
    """Every device can read its whole memory in less than a tenth of a second, and multiplies at least 100 times while
    it reads a byte."""
    for name, spec in specs.DEVICE_SPECS.items():
        assert spec.memory / spec.bandwidth < 0.1, name
        assert spec.flops / spec.bandwidth > 100, name
        assert spec.link < spec.bandwidth, name
    assert specs.memory_bytes(jax.devices()[0]) is None, "a CPU says nothing"
