"""What kinds of devices can do, by their makers' data sheets."""

import re
from typing import NamedTuple

import jax

from tfm.axes import compute_capability


class DeviceSpec(NamedTuple):
    """The data sheet of one kind of device.

    pattern: regular expression that finds it in `device.device_kind`
    flops: FLOP/s of dense bfloat16 products
    memory: bytes of memory
    bandwidth: bytes/s between the device and its memory
    link: bytes/s sent to the other devices of a host or slice, over all links together
    full_name: such a `device_kind`; that of a GPU with its compute capability
    """

    pattern: str
    flops: float
    memory: float
    bandwidth: float
    link: float
    full_name: str = ""


def _gpu(name: str, capability: float, *sheet: float) -> DeviceSpec:
    """An NVIDIA GPU of a compute capability."""
    return _spec(rf"\b{name}\b", f"NVIDIA {name} of compute capability {capability}", *sheet)


def _spec(pattern: str, full_name: str, tera: float, memory: float, bandwidth: float, link: float) -> DeviceSpec:
    """From TFLOP/s, GB and GB/s."""
    return DeviceSpec(pattern, 1e12 * tera, 1e9 * memory, 1e9 * bandwidth, 1e9 * link, full_name)


_GIB = 2**30 / 1e9

# NVIDIA data sheets: T4 (its fp16 speed, since it has no bfloat16), L4, A100 SXM 80 GB, H100 SXM, H200 SXM. Links are
# NVLink, half of the bidirectional figure; PCIe for T4 and L4. Google Cloud's pages "TPU v4" to "TPU v6e": links are
# the interchip interconnect, half of the bidirectional figure; memory is what libtpu leaves to a program.
DEVICE_SPECS = {
    "t4": _gpu("T4", 7.5, 65, 16, 320, 16),
    "l4": _gpu("L4", 8.9, 121, 24, 300, 32),
    "a100": _gpu("A100", 8.0, 312, 80, 2039, 300),
    "h100": _gpu("H100", 9.0, 989, 80, 3350, 450),
    "h200": _gpu("H200", 9.0, 989, 141, 4800, 450),
    "v4": _spec(r"TPU v4\b(?! lite)", "TPU v4", 275, 30.75 * _GIB, 1228, 300),
    "v5e": _spec(r"TPU v5 ?(lite|e)", "TPU v5 lite", 197, 15.75 * _GIB, 819, 200),
    "v5p": _spec(r"TPU v5p?$", "TPU v5p", 459, 95.74 * _GIB, 2765, 600),
    "v6e": _spec(r"TPU v6 ?(lite|e)", "TPU v6 lite", 918, 31.25 * _GIB, 1640, 400),
}


def has_bfloat16(device) -> bool:
    """Whether a device, or a stand-in, has products of bfloat16: NVIDIA GPUs do from compute capability 8 on."""
    capability = compute_capability(device)
    return not capability or float(capability) >= 8


def find_spec(device_kind: str) -> DeviceSpec | None:
    """The data sheet of a `device.device_kind`; None if the table has none."""
    return next((spec for spec in DEVICE_SPECS.values() if re.search(spec.pattern, device_kind)), None)


def peak_flops(device_kind: str) -> float | None:
    """The peak FLOP/s in 16 bits; None if the table has no data sheet."""
    spec = find_spec(device_kind)
    return spec.flops if spec else None


def memory_bytes(device: jax.Device) -> float | None:
    """Bytes of memory: what a local device reports, else the data sheet's; None for a CPU, which has neither."""
    reported = (device.memory_stats() or {}).get("bytes_limit") if device in jax.local_devices() else None
    spec = find_spec(device.device_kind)
    return reported or (spec.memory if spec else None)
