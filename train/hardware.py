"""What a step costs: floating-point operations and memory; and what devices can do."""

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax.extend import core

# Dense bfloat16 TFLOP/s of one device by the makers' data sheets (fp16 for T4), by a pattern of `device.device_kind`.
PEAKS = {
    r"T4\b": 65,
    r"\bL4\b": 121,
    r"\bA100\b": 312,
    r"\bH[12]00\b": 989,
    r"TPU v4\b(?! lite)": 275,
    r"TPU v5 ?(lite|e)": 197,
    r"TPU v5p?$": 459,
    r"TPU v6 ?(lite|e)": 918,
}


def peak(kind: str) -> float | None:
    """FLOP/s that a kind of device can reach in bfloat16; None where it is not known."""
    return next((1e12 * tera for pattern, tera in PEAKS.items() if re.search(pattern, kind)), None)


def flops(f: Callable, *arguments: Any) -> int:
    """Floating-point operations of the matrix products in `f(*arguments)`, which may be shapes: two for each multiplication.

    They are counted in the program that JAX traces, so scanned layers count as often as they run.
    """
    return _flops(jax.make_jaxpr(f)(*arguments).jaxpr)


def _flops(jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(shape[axis] for axis in contracted)
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        total += times * sum(_flops(inner) for inner in core.jaxprs_in_params(equation.params))
    return total


def memory(state, loss: Callable, batch) -> dict[str, float]:
    """About how many bytes a device needs, by what for. `loss(params, batch)` is the loss of one part of a batch, which may be shapes.

    Activations are what the backward pass of the whole program would keep; a compiler keeps less, or needs some for itself.
    """
    forward = lambda params, batch: jax.vjp(lambda params: loss(params, batch), params)[1]
    program = jax.make_jaxpr(forward)(state.params, batch).jaxpr
    kept = {id(value): value.aval for value in program.outvars if value not in (*program.invars, *program.constvars)}
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
            total += math.prod(shape) * jax.numpy.dtype(array.dtype).itemsize if array.dtype != jax.dtypes.float0 else 0
    return total
