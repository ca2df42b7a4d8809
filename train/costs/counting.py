"""What a step costs: floating-point operations and memory; and what devices can do."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
from jax.extend import core


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
