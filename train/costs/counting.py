"""What a step costs: floating-point operations and memory; and what devices can do."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
from jax.extend import core


class Device(NamedTuple):
    """What a kind of device can do, by its maker's data sheet: FLOP/s of dense bfloat16 products, bytes of memory, bytes/s to and from it,
    and bytes/s that leave for the other devices of a host or slice over all links together. `pattern` is of `device.device_kind`."""

    pattern: str
    flops: float
    memory: float
    bandwidth: float
    link: float


def _device(pattern: str, tera: float, memory: float, bandwidth: float, link: float) -> Device:
    """From TFLOP/s and GB."""
    return Device(pattern, 1e12 * tera, 1e9 * memory, 1e9 * bandwidth, 1e9 * link)


_GIB = 2**30 / 1e9

# NVIDIA data sheets: T4 (fp16, which it computes instead of bfloat16), L4, A100 SXM 80 GB, H100 SXM, H200 SXM; links are NVLink, half of
# what they give for both directions, and PCIe for T4 and L4. Google Cloud's pages "TPU v4" .. "TPU v6e"; links are the interchip
# interconnect, half of what the pages give for both directions; memory is what libtpu leaves to a program.
DEVICES = {
    "t4": _device(r"T4\b", 65, 16, 320, 16),
    "l4": _device(r"\bL4\b", 121, 24, 300, 32),
    "a100": _device(r"\bA100\b", 312, 80, 2039, 300),
    "h100": _device(r"\bH100\b", 989, 80, 3350, 450),
    "h200": _device(r"\bH200\b", 989, 141, 4800, 450),
    "v4": _device(r"TPU v4\b(?! lite)", 275, 30.75 * _GIB, 1228, 300),
    "v5e": _device(r"TPU v5 ?(lite|e)", 197, 15.75 * _GIB, 819, 200),
    "v5p": _device(r"TPU v5p?$", 459, 95.74 * _GIB, 2765, 600),
    "v6e": _device(r"TPU v6 ?(lite|e)", 918, 31.25 * _GIB, 1640, 400),
}


def known(kind: str) -> Device | None:
    """The row of a `device.device_kind`; None where it is not in the table."""
    return next((device for device in DEVICES.values() if re.search(device.pattern, kind)), None)


def peak(kind: str) -> float | None:
    """FLOP/s that a kind of device can reach in bfloat16; None where it is not known."""
    device = known(kind)
    return device.flops if device else None


def room(device: jax.Device) -> float | None:
    """Bytes of memory of a device, as it says if it is here, or by the table; None where neither knows, as on a CPU."""
    found = (device.memory_stats() or {}).get("bytes_limit") if device in jax.local_devices() else None
    row = known(device.device_kind)
    return found or (row.memory if row else None)


def flops(f: Callable, *arguments: Any) -> int:
    """Floating-point operations of the matrix products in `f(*arguments)`, which may be shapes: two for each multiplication.

    They are counted in the program that JAX traces, so scanned layers count as often as they run, and what every device does counts for
    each of them.
    """
    return _flops(jax.make_jaxpr(f)(*arguments).jaxpr)


def _flops(jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(shape[axis] for axis in contracted)
        times = _TIMES.get(equation.primitive.name, lambda params: 1)(equation.params)
        total += times * sum(_flops(inner) for inner in core.jaxprs_in_params(equation.params))
    return total


# How often the programs inside of one run; of a kernel, once for each block of its grid, those that it skips too.
_TIMES: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "scan": lambda params: params["length"],
    "shard_map": lambda params: params["mesh"].size,
    "pallas_call": lambda params: math.prod(params["grid_mapping"].grid),
}


def kernels(f: Callable, *arguments: Any) -> list[str]:
    """What computes attention in `f(*arguments)`, and why, each answer once: `tfm.Dense` has written them into the program."""
    return list(dict.fromkeys(_kernels(jax.make_jaxpr(f)(*arguments).jaxpr)))


def _kernels(jaxpr) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield from re.findall(r"attention\[(.*?)\]", str(equation.source_info.name_stack))
        for inner in core.jaxprs_in_params(equation.params):
            yield from _kernels(inner)


def memory(state, loss: Callable, batch) -> dict[str, float]:
    """About how many bytes a device needs, by what for. `loss(params, batch)` is the loss of one part of a batch, which may be shapes.

    Activations are what the backward pass of the whole program would find on the device; a compiler keeps less, or needs some for itself.
    """
    forward = lambda params, batch: jax.vjp(lambda params: loss(params, batch), params)[1]
    program = jax.make_jaxpr(forward)(state.params, batch).jaxpr
    made = (value for value in program.outvars if value not in (*program.invars, *program.constvars))
    kept = {id(value): value.aval for value in made if value.aval.memory_space != jax.memory.Space.Host}
    found = {
        "parameters": bytes_of(jax.tree.leaves(state.params)) + bytes_of(jax.tree.leaves(state.ema)),
        "gradients": bytes_of(jax.tree.leaves(state.params)),
        "optimizer": bytes_of(jax.tree.leaves(state.opt)),
        "activations": bytes_of(kept.values()),
    }
    return {"all": sum(found.values()), **found}


def bytes_of(arrays: Iterable[Any]) -> int:
    """Bytes of arrays or shapes on one of the devices that they are spread over."""
    total = 0
    for array in arrays:
        if hasattr(array, "shape"):
            shape = array.sharding.shard_shape(array.shape) if array.sharding else array.shape
            total += math.prod(shape) * array.dtype.itemsize
    return total
