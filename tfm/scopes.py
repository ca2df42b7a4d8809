"""The scopes of `jax.named_scope` in a program that jax has traced: where its equations stand."""

import itertools
import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxprs_in_params

# Equations that run a program of their own, which is looked into: what their parameter is called.
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "checkpoint": "jaxpr", "remat2": "jaxpr", "closed_call": "call_jaxpr"}
CALLS |= {"core_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}

# The scope of sums over tokens that are no products of matrices: its multiplications and additions count as operations.
SUMS = "sums"

_PACKAGE = str(Path(__file__).parent)


class Place(NamedTuple):
    """Where an equation stands: scopes, whether it is backward, and the repetition of the scan around it."""

    scopes: tuple[str, ...] = ()
    is_backward: bool = False
    repetition: int = 0

    def of(self, equation: JaxprEqn) -> "Place":
        """The place of an equation of the program here."""
        scopes, is_backward = list(self.scopes), self.is_backward
        for element in equation.source_info.name_stack.stack:
            if type(element).__name__ == "Transform":
                is_backward |= element.name == "transpose"
                continue
            name = element.name.partition("[")[0]
            if match := re.fullmatch(r"layers (\d+)::(\d+)", name):  # as `tfm.layers.groups.layer_scope` writes it
                name = f"layer {int(match[1]) + int(match[2]) * self.repetition}"
            if "->" not in name and name != "rematted_computation" and name not in scopes:  # two are jax's own
                scopes.append(name)
        return Place(tuple(scopes), is_backward, self.repetition)


def parts_by_scope(program: Jaxpr) -> list[Jaxpr]:
    """The equations of a program in parts: one that is looked into, or all of a scope that follow each other."""

    def key(pair: tuple[int, JaxprEqn]) -> tuple[Place, int]:
        index, equation = pair
        return Place().of(equation), index if is_structured(equation) else -1

    groups = [[equation for _, equation in group] for _, group in itertools.groupby(enumerate(program.eqns), key)]
    read_later = set(variables(program.outvars))
    parts: list[Jaxpr] = []
    for equations in reversed(groups):
        parts.append(alone(program, *equations, read_later=read_later))
        read_later |= set(parts[-1].invars)
    return parts[::-1]


def alone(program: Jaxpr, *equations: JaxprEqn, read_later: Container[Var] = ()) -> Jaxpr:
    """Equations as a program that returns what is read later, and at its end what the last of them returns."""
    results = dict.fromkeys(name for equation in equations[:-1] for name in equation.outvars)
    names = dict.fromkeys(name for equation in equations for name in variables(equation.invars) if name not in results)
    inputs = [name for name in names if name not in results]
    outputs = [*(name for name in results if name in read_later), *equations[-1].outvars]
    return program.replace(constvars=[], invars=inputs, outvars=outputs, eqns=list(equations))


def is_structured(equation: JaxprEqn) -> bool:
    """Whether an equation is looked into: a scan, a choice, or a call of what has scopes or scans."""
    name = equation.primitive.name
    if name not in CALLS:
        return name in ("scan", "cond")
    inner = equation.params[CALLS[name]]
    equations = (inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner).eqns
    return any(is_structured(inner_equation) or Place().of(inner_equation).scopes for inner_equation in equations)


def has_masks(part: Jaxpr) -> bool:
    """Whether -inf is written in equations."""
    values = [np.asarray(name.val) for equation in part.eqns for name in equation.invars if isinstance(name, Literal)]
    inner = [program for equation in part.eqns for program in jaxprs_in_params(equation.params)]
    numbers = [value for value in values if jax.numpy.issubdtype(value.dtype, jax.numpy.floating)]
    return any((value == -np.inf).any() for value in numbers) or any(map(has_masks, inner))


def line_of(equation: JaxprEqn) -> str:
    """The innermost line of the package behind an equation."""
    traceback: Any = equation.source_info.traceback
    for frame in traceback.frames if traceback else ():
        if frame.file_name.startswith(_PACKAGE):
            return f"tfm{frame.file_name.removeprefix(_PACKAGE)}:{frame.line_num}"
    return ""


def variables(names: Sequence[Var | Literal]) -> list[Var]:
    """The names that are not literals."""
    return [name for name in names if not isinstance(name, Literal)]
