"""The training step is compiled once for every shape of a batch that the plan knows; whatever compiles it again is a mistake of ours."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

Shapes = Mapping[str, tuple[int, ...]]


class RecompilationError(Exception):
    """The training step was compiled again, and not for a batch that was announced."""


class Kind(NamedTuple):
    """What a compiled program takes for granted of an array."""

    shape: tuple[int, ...]
    dtype: Any
    weak: bool
    sharding: Any

    def same(self, other: "Kind") -> bool:
        """Whether one program does for both."""
        if self[:3] != other[:3] or None in (self.sharding, other.sharding):
            return self == other
        return self.sharding.is_equivalent_to(other.sharding, len(self.shape))

    def __str__(self):
        place = getattr(self.sharding, "spec", self.sharding)
        return f"{'weakly typed ' * self.weak}{self.dtype}[{','.join(map(str, self.shape))}] sharded as {place}"


class Guard:
    """A jitted step(state, batch) that raises RecompilationError where a call was compiled for a batch whose fields have other shapes than
    those `announced`, or, after the first call, for anything else that has changed.

    It costs next to nothing: arrays are looked at only after a call that was compiled. Their kinds outlive them.
    """

    def __init__(self, step: Callable, announced: Sequence[Shapes]):
        self._step: Any = step
        self._announced = announced
        self._first: dict[str, Kind] = {}

    def __call__(self, state, batch):  # noqa: D102
        programs = self._step._cache_size()
        found = self._step(state, batch)
        if self._step._cache_size() > programs:
            self._check(kinds({"batch": batch, "state": state}))
        return found

    def _check(self, now: dict[str, Kind]):
        """Raises RecompilationError for the first array that is not of the kind it should be."""
        self._first = self._first or now
        alike = lambda shapes: sum(now[name].shape == shape for name, shape in shapes.items() if name in now)
        nearest = max(
            ({f"batch.{field}": shape for field, shape in shapes.items()} for shapes in self._announced), key=alike
        )
        wanted = {name: kind._replace(shape=nearest.get(name, kind.shape)) for name, kind in self._first.items()}
        for name in {**wanted, **now}:
            was, found = wanted.get(name), now.get(name)
            if was is None or found is None or not was.same(found):
                raise RecompilationError(
                    f"the training step was compiled again: {name} should be {was or 'absent'} and is {found or 'absent'}; "
                    "that is a mistake in the program, not in the data or the flags: please report it"
                )


def kinds(tree) -> dict[str, Kind]:
    """The kind of every array by its name, such as state.params.encoder.embed.tokens; it may have been given up."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): _kind(leaf) for path, leaf in leaves}


def _kind(leaf) -> Kind:
    aval = jax.typeof(leaf)
    return Kind(aval.shape, aval.dtype, aval.weak_type, getattr(leaf, "sharding", None))
