"""Values that are not finite: which parameters hold them, and in which layer of a model they arise.

`run_by_scope` runs the program that jax has traced, one scope of `jax.named_scope` after the other, and the scope where
values cease to be finite one equation after the other. So no layer knows of it, and it looks into scans, recomputed
blocks and gradients. It is for finding faults: slower than the compiled function, and on one device.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jax.tree_util import KeyPath
from jax.typing import ArrayLike

from tfm.params import PyTree
from tfm.scopes import CALLS, Place, alone, has_masks, is_structured, line_of, parts_by_scope, variables


class Origin(NamedTuple):
    """The first values that are not finite.

    order: the number of its equation; those of arguments are below 0
    scope: such as "decoder/layer 3/feed_forward"; of an argument, its name
    is_backward: whether it belongs to the backward pass
    operation: the primitive of jax, "" for an argument
    line: the file and line of the package that asks for the operation, "" if unknown
    shape: of the array that holds them
    nans, infinities: how many there are
    rows: the indices along the first axis where they are
    """

    order: int
    scope: str
    is_backward: bool
    operation: str
    line: str
    shape: tuple[int, ...]
    nans: int
    infinities: int
    rows: tuple[int, ...]

    def __str__(self):
        counts = [f"{count:,} {name}" for count, name in ((self.nans, "nan"), (self.infinities, "inf")) if count]
        size = int(np.prod(self.shape))
        count = f"{' and '.join(counts)} in {size:,} value{'s' * (size > 1)}"
        if not self.operation:
            return f"{self.scope} is not finite ({count})"
        place = f", {self.line}" if self.line else ""
        backward = "the backward pass of " if self.is_backward else ""
        scope = self.scope or "a part outside of the layers"
        return f"{backward}{scope} is the first that is not finite ({self.operation}: {count}{place})"


class ScopedRun(NamedTuple):
    """What `run_by_scope` returns.

    outputs: what the function returns
    origin: where the first value arises that is not finite and reaches the outputs, or None
    sizes: for each scope of the forward pass, the root of the mean square of its last result
    """

    outputs: PyTree
    origin: Origin | None
    sizes: dict[str, float]


def names_not_finite(tree: PyTree) -> list[str]:
    """The names of the leaves of a tree that hold values that are not finite."""
    leaves = [(path, leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree) if _is_inexact(leaf)]
    flags = [_finite_shards(leaf) for _, leaf in leaves]
    return [_name(path) for (path, _), shards in zip(leaves, flags, strict=True) if not all(shards)]


def first_not_finite(function: Callable[..., PyTree], *args: PyTree) -> Origin | None:
    """Where the first value of function(*args) arises that is not finite and reaches its result; None if there is none.

    What does not reach the result, such as the logarithm of zero that a mask hides, does not count.
    """
    return run_by_scope(function, *args).origin


def run_by_scope(function: Callable[..., PyTree], *args: PyTree) -> ScopedRun:
    """Runs function(*args) equation by equation, on the device where the arguments are."""
    program, result = jax.make_jaxpr(function, return_shape=True)(*args)
    leaves = [(_name(path[1:]), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(args)]
    values = [
        _Value(leaf, _origin(leaf, order, name), False) for order, (name, leaf) in enumerate(leaves, -len(leaves))
    ]
    walk = _Walk()
    outputs = walk.closed(program, values, Place())
    origins = [value.origin for value in outputs if value.origin]
    arrays = jax.tree.unflatten(jax.tree.structure(result), [value.array for value in outputs])
    return ScopedRun(arrays, min(origins, default=None), walk.sizes)


class _Value(NamedTuple):
    """An array, where its first value arose that is not finite, and whether it holds -inf on purpose."""

    array: jax.Array
    origin: Origin | None
    masks: bool


class _Walk:
    """Runs programs part by part, and remembers what their scopes returned."""

    def __init__(self):
        self.sizes: dict[str, float] = {}
        self._order = 0
        self._parts: dict[int, list[Jaxpr]] = {}
        self._compiled: dict[str, Callable[..., list[jax.Array]]] = {}

    def closed(self, program: ClosedJaxpr, values: Sequence[_Value], place: Place) -> list[_Value]:
        """The results of a program with its constants."""
        constants = [_Value(constant, None, False) for constant in program.consts]
        return self._run(program.jaxpr, [*constants, *values], place)

    def _run(self, program: Jaxpr, values: Sequence[_Value], place: Place) -> list[_Value]:
        if id(program) not in self._parts:
            self._parts[id(program)] = parts_by_scope(program)
        return self._run_parts(program, self._parts[id(program)], values, place)

    def _run_parts(
        self, program: Jaxpr, parts: Sequence[Jaxpr], values: Sequence[_Value], place: Place
    ) -> list[_Value]:
        environment: dict[Var, _Value] = dict(zip([*program.constvars, *program.invars], values, strict=True))
        last_uses: dict[Var, int] = {name: index for index, part in enumerate(parts) for name in part.invars}
        last_uses |= {name: len(parts) for name in variables(program.outvars)}
        for index, part in enumerate(parts):
            inputs = [environment[name] for name in part.invars]
            results = variables(part.outvars)
            environment |= zip(results, self._part(part, inputs, place), strict=True)
            for name in (*part.invars, *results):
                if last_uses.get(name, -1) <= index:
                    environment.pop(name, None)
        return _read(program.outvars, environment)

    def _part(self, part: Jaxpr, inputs: list[_Value], place: Place) -> list[_Value]:
        equation = part.eqns[0]
        inside = place.of(equation)
        if not is_structured(equation):
            return self._compute(part, inputs, place)
        environment: dict[Var, _Value] = dict(zip(part.invars, inputs, strict=True))
        inputs = _read(equation.invars, environment)
        params = equation.params
        if equation.primitive.name == "scan":
            return self._scan(params, inputs, inside)
        if equation.primitive.name == "cond":
            return self.closed(params["branches"][int(inputs[0].array)], inputs[1:], inside)
        inner = params[CALLS[equation.primitive.name]]
        return (self.closed if isinstance(inner, ClosedJaxpr) else self._run)(inner, inputs, inside)

    def _compute(self, part: Jaxpr, inputs: list[_Value], place: Place) -> list[_Value]:
        """The results of equations of one scope: what is not finite in them was so in their inputs, or arises here."""
        key = str(part)
        if key not in self._compiled:
            self._compiled[key] = jax.jit(jaxpr_as_fun(ClosedJaxpr(part, ())))
        arrays = self._compiled[key](*(value.array for value in inputs))
        self._order += 1
        inside = place.of(part.eqns[0])
        masks = any(value.masks for value in inputs) or has_masks(part)
        first = min((value.origin for value in inputs if value.origin), default=None)
        results = [self._value(array, first, masks, part.eqns[-1], inside) for array in arrays]
        if not inside.is_backward and _is_inexact(arrays[-1]):
            self.sizes["/".join(inside.scopes)] = _root_mean_square(arrays[-1])
        if first or len(part.eqns) == 1 or not any(value.origin for value in results):
            return results
        fine = self._run_parts(part, [alone(part, equation) for equation in part.eqns], inputs, place)
        return [
            result._replace(origin=value.origin) if result.origin and value.origin else result
            for result, value in zip(results, fine, strict=True)
        ]

    def _value(self, array: jax.Array, first: Origin | None, masks: bool, equation: JaxprEqn, place: Place) -> _Value:
        origin = _origin(array, self._order, "/".join(place.scopes), place.is_backward, equation)
        if origin is None or (masks and not _holds_nan_or_inf(array)):
            return _Value(array, None, origin is not None)
        return _Value(array, first or origin, False)

    def _scan(self, params: Mapping[str, Any], inputs: list[_Value], place: Place) -> list[_Value]:
        """The repetitions of a scan, one after the other."""
        constants = inputs[: params["num_consts"]]
        state = inputs[params["num_consts"] :][: params["num_carry"]]
        rows = inputs[params["num_consts"] + params["num_carry"] :]
        stacks: list[list[_Value]] = []
        order = range(params["length"])
        for index in reversed(order) if params["reverse"] else order:
            inside = [_row(value, index) for value in rows]
            outputs = self.closed(params["jaxpr"], [*constants, *state, *inside], place._replace(repetition=index))
            state, results = outputs[: params["num_carry"]], outputs[params["num_carry"] :]
            stacks.append(results)
        if params["reverse"]:
            stacks.reverse()
        return [*state, *(_stacked(column) for column in zip(*stacks, strict=True))]


def _read(names: Sequence[Var | Literal], environment: Mapping[Var, _Value]) -> list[_Value]:
    """The values of names and literals."""
    return [_Value(name.val, None, False) if isinstance(name, Literal) else environment[name] for name in names]


def _row(value: _Value, index: int) -> _Value:
    array = value.array[index]
    origin = value.origin if value.origin and _is_inexact(array) and not np.isfinite(_host(array)).all() else None
    return _Value(array, origin, value.masks)


def _stacked(column: Sequence[_Value]) -> _Value:
    origin = min((value.origin for value in column if value.origin), default=None)
    return _Value(jnp.stack([value.array for value in column]), origin, any(value.masks for value in column))


def _origin(
    array: ArrayLike, order: int, scope: str, is_backward: bool = False, equation: JaxprEqn | None = None
) -> Origin | None:
    """What is not finite in an array, None if nothing is; the array of an argument has no equation."""
    if not _is_inexact(array):
        return None
    values = _host(array)
    if np.isfinite(values).all():
        return None
    nans = np.isnan(values)
    infinities = np.isinf(values)
    bad = (nans | infinities).reshape(values.shape[0] if values.ndim else 1, -1).any(1)
    operation = "" if equation is None else equation.primitive.name
    line = "" if equation is None else line_of(equation)
    counts = int(nans.sum()), int(infinities.sum())
    rows = tuple(np.flatnonzero(bad).tolist())
    return Origin(order, scope, is_backward, operation, line, values.shape, *counts, rows)


def _holds_nan_or_inf(array: ArrayLike) -> bool:
    values = _host(array)
    return bool((np.isnan(values) | (values == np.inf)).any())


def _root_mean_square(array: jax.Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.square(_host(array), dtype=np.float64).mean())) if array.size else 0.0


def _host(array: ArrayLike) -> np.ndarray:
    """A float array as numpy's float32; float64 stays."""
    values = np.asarray(array)
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)


def _is_inexact(leaf: ArrayLike) -> bool:
    return jnp.issubdtype(getattr(leaf, "dtype", np.result_type(type(leaf))), jnp.inexact)


def _finite_shards(leaf: ArrayLike) -> list[jax.Array | np.bool]:
    """For each part of an array on a device of this process, whether its values are finite; the device may compute it
    yet."""
    if not isinstance(leaf, jax.Array):
        return [np.isfinite(_host(leaf)).all()]
    shards = [shard for shard in leaf.addressable_shards if shard.replica_id == 0]
    return [
        np.isfinite(_host(shard.data)).all() if shard.device.platform == "cpu" else _all_finite(shard.data)
        for shard in shards
    ]


@jax.jit
def _all_finite(array: jax.Array) -> jax.Array:
    return jnp.isfinite(array).all()


def _name(path: KeyPath) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
