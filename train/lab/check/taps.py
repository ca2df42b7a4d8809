"""Gradients for the inputs of blocks, taken of a function that knows nothing of them.

Every block names its input (`tfm.layers.stack`). A function is traced, and what was traced gets an equation more behind
each such name: it adds an offset. So the loss of a task itself is differentiated, not a copy of its forward pass.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, jaxpr_as_fun

from tfm.layers.block import BLOCK_INPUT
from tfm.params import PyTree


def block_gradients(
    function: Callable[..., Array], params: PyTree, batch: Mapping[str, Array], inputs: Sequence[str]
) -> dict[str, list[Array]]:
    """The gradients of a scalar function(params, batch) for the input of every block that it runs, in their order, by
    the field among `inputs` that their stack reads.

    Blocks must be unrolled and not recomputed: names inside a scan are not seen.
    """
    arguments = params, dict(batch)
    closed = jax.make_jaxpr(function)(*arguments)
    fields = _fields(closed, params, batch, inputs)
    closed, avals = _with_offsets(closed)
    run, leaves = jaxpr_as_fun(closed), jax.tree.leaves(arguments)
    offsets = [jnp.zeros(aval.shape, aval.dtype, out_sharding=aval.sharding) for aval in avals]
    gradients = jax.grad(lambda offsets: run(*offsets, *leaves)[0])(offsets)
    by_field: dict[str, list[Array]] = {name: [] for name in inputs}
    for field, gradient in zip(fields, gradients, strict=True):
        if field is not None:
            by_field[field].append(gradient)
    return by_field


def _is_block_input(equation: JaxprEqn) -> bool:
    return equation.primitive.name == "name" and equation.params["name"] == BLOCK_INPUT


def _fields(closed: ClosedJaxpr, params: PyTree, batch: Mapping[str, Array], inputs: Sequence[str]) -> list[str | None]:
    """The field that the stack of every block reads; None of trained queries. The first block of a stack has an input
    that depends on no block, and on this field alone."""
    variables = closed.jaxpr.invars[len(jax.tree.leaves(params)) :]
    names = [name for name in sorted(batch) for _ in jax.tree.leaves(batch[name])]
    sources = {variable: {name} & set(inputs) for variable, name in zip(variables, names, strict=True)}
    fields: list[str | None] = []
    for equation in closed.jaxpr.eqns:
        read: set[str] = set()
        for variable in equation.invars:
            read |= set() if isinstance(variable, Literal) else sources.get(variable, set())
        if _is_block_input(equation):
            fields.append(fields[-1] if BLOCK_INPUT in read else next(filter(read.__contains__, inputs), None))
            read = read | {BLOCK_INPUT}
        sources |= dict.fromkeys(equation.outvars, read)
    return fields


def _with_offsets(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list[ShapedArray]]:
    """The program with an argument more, before its own, for the input of each block; and the types of these."""
    jaxpr = closed.jaxpr
    equations, offsets = [], []
    for equation in jaxpr.eqns:
        if not _is_block_input(equation):
            equations.append(equation)
            continue
        aval = cast(ShapedArray, equation.outvars[0].aval)
        shape = jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=aval.sharding)
        # A function of its own each time: what is traced once has the same variables again.
        addition = jax.make_jaxpr(lambda x, offset: jax.lax.add(x, offset))(shape, shape).jaxpr
        block_input, offset = addition.invars
        equations += [equation.replace(outvars=[block_input]), addition.eqns[0].replace(outvars=equation.outvars)]
        offsets.append(offset)
    program = jaxpr.replace(
        eqns=equations, invars=[*offsets, *jaxpr.invars], debug_info=jaxpr.debug_info.with_unknown_names()
    )
    return ClosedJaxpr(program, closed.consts), [cast(ShapedArray, offset.aval) for offset in offsets]
