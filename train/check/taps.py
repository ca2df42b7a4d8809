"""Gradients for the inputs of blocks, taken of a function that knows nothing of them.

Every block names its input (`tfm.layers.stack`). A function is traced, and what was traced gets an equation more behind
each such name: it adds an offset. So the loss of a task itself is differentiated, not a copy of its forward pass.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

NAME = "block input"


def block_gradients(function: Callable[..., Array], *arguments: Any) -> list[Array]:
    """The gradients of a scalar function for the input of every block that it runs, in their order.

    Blocks must be unrolled and not recomputed: names inside a scan are not seen.
    """
    closed, inputs = _with_offsets(jax.make_jaxpr(function)(*arguments))
    run, leaves = jaxpr_as_fun(closed), jax.tree.leaves(arguments)
    offsets = [jnp.zeros(aval.shape, aval.dtype, out_sharding=aval.sharding) for aval in inputs]
    return jax.grad(lambda offsets: run(*offsets, *leaves)[0])(offsets)


def _with_offsets(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list[Any]]:
    """The program with an argument more, before its own, for the input of each block; and the types of these."""
    jaxpr = closed.jaxpr
    equations, offsets = [], []
    for equation in jaxpr.eqns:
        if equation.primitive.name != "name" or equation.params["name"] != NAME:
            equations.append(equation)
            continue
        aval = equation.outvars[0].aval
        shape = jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=aval.sharding)
        # A function of its own each time: what is traced once has the same variables again.
        addition = jax.make_jaxpr(lambda x, offset: jax.lax.add(x, offset))(shape, shape).jaxpr
        block_input, offset = addition.invars
        equations += [equation.replace(outvars=[block_input]), addition.eqns[0].replace(outvars=equation.outvars)]
        offsets.append(offset)
    program = jaxpr.replace(
        eqns=equations, invars=[*offsets, *jaxpr.invars], debug_info=jaxpr.debug_info.with_unknown_names()
    )
    return ClosedJaxpr(program, closed.consts), [offset.aval for offset in offsets]
