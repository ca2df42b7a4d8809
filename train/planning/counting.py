"""Floating-point operations and attention kernels of a program, counted in what JAX traces."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import cast

import jax
from jax.core import ShapedArray
from jax.extend import core
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

from tfm.scopes import SUMS
from train.losses.loss import Extra
from train.training.job import Job, extra_of, largest_batch, largest_part


def model_flops(job: Job, part=None) -> int:
    """Floating-point operations that the model needs for a step, on all devices: three times those of the forward pass.

    They do not depend on the kernel of attention or on recomputation. Scores count where the pattern of a layer leaves
    them; a causal mask counts as if it left all, and so do padding and the borders of packed texts. `part` is one part
    of a batch (default: of the largest). The F of MFU (Chowdhery et al. 2022, appendix B).
    """
    model = dataclasses.replace(job.run.model, kernel="einsum")

    def loss(params, batch, memory):
        return job.task.loss(params, model, batch, None, **Extra(memory).arguments)

    part = largest_part(job) if part is None else part
    with jax.set_mesh(job.mesh):
        forward = needed_flops(loss, job.state.params, part, extra_of(job).memory)
    return 3 * job.run.batch.accumulate * forward


def hardware_flops(job: Job) -> int:
    """Floating-point operations that the step performs, on all devices, with all that it recomputes."""
    step = job.train_step.__wrapped__  # a function that is jitted with compiler options cannot be traced inside another
    with jax.set_mesh(job.mesh):
        return flops(step, job.state, largest_batch(job))


def flops(f: Callable[..., object], *arguments: object) -> int:
    """Floating-point operations that `f(*arguments)` performs: of products of matrices two for each multiplication,
    of Fourier transforms, and of the sums over tokens that mixers compute without products.

    Arguments may be shapes. A scanned layer counts as often as it runs, and a product on several devices on each.
    """
    return _flops(jax.make_jaxpr(f)(*arguments).jaxpr)


def needed_flops(f: Callable[..., object], *arguments: object) -> int:
    """`flops` if attention by einsum skipped masked scores."""
    return _flops(jax.make_jaxpr(f)(*arguments).jaxpr, needed=True)


def _flops(jaxpr: Jaxpr, needed: bool = False, in_sums: bool = False) -> int:
    """`needed`: only of pairs that masks leave; `in_sums`: multiplications and additions count."""
    total = 0
    for equation in jaxpr.eqns:
        name, scopes = equation.primitive.name, str(equation.source_info.name_stack)
        sums = in_sums or SUMS in re.split(r"[/()]", scopes)
        is_sum = sums and name in _SUMMED and _is_real(equation)
        rule = _SUMMED[name] if is_sum else _OPERATIONS.get(name)
        count = rule(equation) if rule else 0
        pairs = re.search(r"\[(\d+)/(\d+) pairs\]", scopes) if needed else None
        inner = sum(_flops(program, needed and not pairs, sums) for program in core.jaxprs_in_params(equation.params))
        count += int(_RUNS.get(name, lambda equation: 1)(equation) * inner)
        total += count * int(pairs[1]) // int(pairs[2]) if pairs else count
    return total


def _is_real(equation: JaxprEqn) -> bool:
    """Whether an equation returns floating-point numbers."""
    return jax.numpy.issubdtype(_aval(equation.outvars[0]).dtype, jax.numpy.floating)


def _aval(value: Var | Literal) -> ShapedArray:
    """The shape and dtype of a value of a program."""
    return cast(ShapedArray, value.aval)


def _product(equation: JaxprEqn) -> int:
    """Operations of a product of matrices."""
    (contracted, _), _ = equation.params["dimension_numbers"]
    shape = _aval(equation.invars[0]).shape
    return 2 * _aval(equation.outvars[0]).size * math.prod(shape[axis] for axis in contracted)


def _fourier(equation: JaxprEqn) -> int:
    """Operations of Fourier transforms of n numbers: 5 n log2 n, and half of that where one side is real (Frigo &
    Johnson 2005)."""
    length = math.prod(equation.params["fft_lengths"])
    largest = max(_aval(equation.invars[0]).size, _aval(equation.outvars[0]).size)
    is_complex = all(jax.numpy.iscomplexobj(value.aval) for value in (*equation.invars, *equation.outvars))
    return round((5 if is_complex else 2.5) * largest * math.log2(length))


def _fused_attention(products: int) -> Callable[[JaxprEqn], int]:
    """Operations of `products` products of all queries [B,T,N,H] with all keys [B,S,K,H]."""

    def operations(equation: JaxprEqn) -> int:
        q, k = (_aval(value) for value in equation.invars[:2])
        return 2 * products * q.size * k.shape[1]

    return operations


# Operations of a primitive. The kernel of cuDNN computes the scores again in its backward pass.
_OPERATIONS: dict[str, Callable[[JaxprEqn], int]] = {
    "dot_general": _product,
    "fft": _fourier,
    "dot_product_attention_fwd_wrapper": _fused_attention(2),
    "dot_product_attention_bwd_wrapper": _fused_attention(5),
}

# Those of a primitive in a sum over tokens.
_SUMMED: dict[str, Callable[[JaxprEqn], int]] = {
    **dict.fromkeys(("mul", "add", "add_any", "cumsum"), lambda equation: _aval(equation.outvars[0]).size),
    "reduce_sum": lambda equation: _aval(equation.invars[0]).size,
}


def _turns(equation: JaxprEqn) -> Fraction:
    """How often a loop turns, on average, by its scope; once where that says nothing."""
    turns = re.search(r"\[(\d+/\d+) turns\]", str(equation.source_info.name_stack))
    return Fraction(turns[1] if turns else 1)


# How often a primitive runs its inner programs; a kernel once for each block of its grid, skipped blocks included.
_RUNS: dict[str, Callable[[JaxprEqn], int | Fraction]] = {
    "while": _turns,
    "scan": lambda equation: equation.params["length"],
    "shard_map": lambda equation: equation.params["mesh"].size,
    "pallas_call": lambda equation: math.prod(equation.params["grid_mapping"].grid),
}


def kernels(f: Callable[..., object], *arguments: object) -> list[str]:
    """`kernels_of` the program of `f(*arguments)`."""
    return kernels_of(jax.make_jaxpr(f)(*arguments).jaxpr)


def kernels_of(program: Jaxpr) -> list[str]:
    """The attention kernels in a program and the reasons for them, without repetition.

    `tfm` writes them into the program as name scopes: `attention[einsum: few scores]`.
    """
    return list(dict.fromkeys(_kernels(program)))


def _kernels(jaxpr: Jaxpr) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield from re.findall(r"attention\[(.*?)\]", str(equation.source_info.name_stack))
        for inner in core.jaxprs_in_params(equation.params):
            yield from _kernels(inner)
