"""The training step is compiled once for every planned shape of a batch; any other compilation is an error."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import jax
from jax import Array
from jax.sharding import Sharding

from train.runs.state import State

Shapes = Mapping[str, tuple[int, ...]]


class RecompilationError(Exception):
    """The training step was compiled again, and not for a planned shape of a batch."""


class JittedStep(Protocol):
    """A training step that `jax.jit` made."""

    def __call__(self, state: State, batch: Mapping[str, Array]) -> tuple[State, dict[str, Array]]:
        """(state, sums)."""

    def _cache_size(self) -> int:
        """How many programs were compiled."""


class Guard:
    """A jitted step(state, batch) that raises RecompilationError when a call compiles it unexpectedly.

    A call may compile it for a batch with `planned` shapes, if nothing else differs from the first call. Calls that
    do not compile cost nothing: only after a compilation the guard looks at the types of all arrays, also donated ones.
    """

    def __init__(self, step: JittedStep, planned: Sequence[Shapes]):
        self.step = step
        self._planned = planned
        self._first: dict[str, ArrayType] = {}
        self.compiled = False  # whether the last call compiled the step
        self.shapes: set[tuple[tuple[int, ...], ...]] = set()  # of the batches for which it was compiled

    def __call__(self, state: State, batch: Mapping[str, Array]) -> tuple[State, dict[str, Array]]:
        programs = self.step._cache_size()
        output = self.step(state, batch)
        self.compiled = self.step._cache_size() > programs
        if self.compiled:
            self.shapes.add(tuple(field.shape for field in batch.values()))
            self._check(array_types({"batch": batch, "state": state}))
        return output

    def _check(self, types: "dict[str, ArrayType]"):
        """Raises RecompilationError for the first array that is not as expected."""
        self._first = self._first or types
        candidates = [{f"batch.{field}": shape for field, shape in shapes.items()} for shapes in self._planned]
        nearest = max(
            candidates, key=lambda shapes: sum(types[name].shape == shapes[name] for name in shapes if name in types)
        )
        expected = {name: first._replace(shape=nearest.get(name, first.shape)) for name, first in self._first.items()}
        for name in {**expected, **types}:
            wanted, actual = expected.get(name), types.get(name)
            if wanted is None or actual is None or not wanted.matches(actual):
                raise RecompilationError(
                    f"the training step was compiled again: {name} should be {wanted or 'absent'} and is "
                    f"{actual or 'absent'}; that is a mistake in the program, not in the data or the flags: "
                    "please report it"
                )


class ArrayType(NamedTuple):
    """What a compiled program takes for granted of an array."""

    shape: tuple[int, ...]
    dtype: object
    weak: bool
    sharding: Sharding | None

    def matches(self, actual: "ArrayType") -> bool:
        """Whether one program serves both."""
        if self[:3] != actual[:3] or self.sharding is None or actual.sharding is None:
            return self == actual
        return self.sharding.is_equivalent_to(actual.sharding, len(self.shape))

    def __str__(self):
        weak = "weakly typed " if self.weak else ""
        place = getattr(self.sharding, "spec", self.sharding)
        return f"{weak}{self.dtype}[{','.join(map(str, self.shape))}] sharded as {place}"


def array_types(tree) -> dict[str, ArrayType]:
    """The type of every array by its name, such as state.params.encoder.embed.tokens; it may have been donated."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): _type(leaf) for path, leaf in leaves}


def _type(leaf) -> ArrayType:
    aval = jax.typeof(leaf)
    return ArrayType(aval.shape, aval.dtype, aval.weak_type, getattr(leaf, "sharding", None))
