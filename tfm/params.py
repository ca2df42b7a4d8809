"""Parameters are declared once, as a tree of specs; values, shapes, shardings, counts and decay masks are read off it.

The spec tree has the structure of the parameter tree: its dataclasses with a `Spec` where the array will be, and None
where a variant has no such parameter.
"""

import dataclasses
import math
import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding

from tfm.axes import AXES, partition
from tfm.config.model import Config
from tfm.sharding import named_sharding, spec_of

# A tree of arrays, or of specs, shapes or shardings that stand for them; its classes differ from model to model.
PyTree: TypeAlias = Any

# A `Spec`, typed as the array in whose place it stands.
ArraySpec: TypeAlias = Any


@dataclasses.dataclass(frozen=True)
class Spec:
    """One parameter, as it is declared.

    axes: a letter for each axis (`tfm.AXES`; lower case: an axis of one variant's own, on every device in full)
    shape: its stored shape
    init: (key, shape, sharding) -> float32 array
    decay: weight decay applies to it
    inputs: how many leading axes, L left out, are the inputs of a product; 0 for biases and norms
    trained: the optimizer changes it
    running: training steps add the change that layers return in place of a gradient (`running.py` of clusters)
    branch: it lies on a residual branch and scales its output, as values, outputs and feed-forward matrices do
    rate: its share of the learning rate; weight decay is that of a share of 1
    redraw: training steps after which it is drawn anew; None: never
    padding: elements that exist only to round the vocabulary up
    dtype: stored dtype
    """

    axes: str
    shape: tuple[int, ...]
    init: Callable[..., jax.Array]
    decay: bool
    inputs: int = 0
    trained: bool = True
    running: bool = False
    branch: bool = False
    rate: float = 1.0
    redraw: int | None = None
    padding: int = 0
    dtype: str = "float32"


def weight_spec(config: Config, axes: str, inputs: int = 1, branch: bool = False, **sizes: int) -> ArraySpec:
    """A matrix or table: truncated normal of `config.init_std`, cut at two standard deviations, decayed.

    `sizes` are those that the configuration does not know. Source: Devlin et al. 2018.
    """

    def init(key, shape, sharding):
        return config.init_std * jax.random.truncated_normal(key, -2, 2, shape, jnp.float32, out_sharding=sharding)

    return dataclasses.replace(_spec(config, axes, init, sizes), decay=True, inputs=inputs, branch=branch)


def bias_spec(config: Config, axes: str, **sizes: int) -> ArraySpec:
    """A bias: zeros, not decayed."""
    return _spec(config, axes, constant(0.0), sizes)


def vector_spec(config: Config, axes: str, **sizes: int) -> ArraySpec:
    """A trained vector that stands among others: a truncated normal as that of matrices, not decayed."""
    return dataclasses.replace(weight_spec(config, axes, 0, False, **sizes), decay=False)


def scale_spec(config: Config, axes: str, **sizes: int) -> ArraySpec:
    """A norm's scale: ones, not decayed."""
    return _spec(config, axes, constant(1.0), sizes)


def constant_spec(config: Config, axes: str, value: float) -> ArraySpec:
    """A scale that starts at this value, not decayed."""
    return _spec(config, axes, constant(value), {})


def fixed_spec(
    config: Config, axes: str, init: Callable[..., jax.Array], redraw: int | None = None, **sizes: int
) -> ArraySpec:
    """An array that is stored, sharded and checkpointed like a parameter, but never trained; its shape [...] is that of
    `axes`."""
    return dataclasses.replace(_spec(config, axes, init, sizes), trained=False, redraw=redraw)


def running_spec(config: Config, axes: str, init: Callable[..., jax.Array], **sizes: int) -> ArraySpec:
    """Running state, float32 [...] of the shape of `axes`, that training steps change as its layers say
    (`running.py` of clusters)."""
    spec = _spec(config, axes, init, sizes)
    return dataclasses.replace(spec, trained=False, running=True, dtype="float32")


def xavier(spec: Spec, gain: float = 1.0) -> Spec:
    """The matrix of one layer with another start: normal, of variance 2 gain^2 / (inputs + outputs).

    Source: Glorot & Bengio 2010, eq. 12.
    """
    fans = math.prod(spec.shape[: spec.inputs]) + math.prod(spec.shape[spec.inputs :])
    return normal(spec, gain * (2 / fans) ** 0.5)


def normal(spec: Spec, std: float) -> Spec:
    """The parameter with another start: normal, with this standard deviation."""

    def init(key, shape, sharding):
        return std * jax.random.normal(key, shape, jnp.float32, out_sharding=sharding)

    return dataclasses.replace(spec, init=init)


def stacked(specs, layers: int):
    """The specs of `layers` equal layers, stacked along a new leading axis L."""

    def stack(spec):
        return dataclasses.replace(
            spec, axes="L" + spec.axes, shape=(layers, *spec.shape), padding=layers * spec.padding
        )

    return jax.tree.map(stack, specs)


def init(specs, key: jax.Array, mesh: Mesh | None = None):
    """Parameters, each in the dtype of its spec, sharded where a mesh is given (then inside `jax.set_mesh(mesh)`).

    A leaf has the shape [...] of its spec. Its values depend on the key and its path, not on its neighbours or the
    mesh. Raises ValueError where a mesh does not divide a shape, as `shardings` does.
    """

    def make(path, spec):
        sharding = _sharding(spec, mesh) if mesh else None
        return spec.init(_leaf_key(key, path), spec.shape, sharding).astype(spec.dtype)

    return jax.tree_util.tree_map_with_path(make, specs)


def redraw(specs, params, key: jax.Array, step: jax.Array):
    """Parameters as training step `step` reads them: those whose `Spec.redraw` divides the step are drawn anew.

    `step` is int32 []. What is drawn depends on the key, the path and the step alone.
    """

    def make(path, spec, leaf):
        if spec.redraw is None:
            return leaf
        draw_key = jax.random.fold_in(_leaf_key(key, path), step)
        sharding = named_sharding(leaf, leaf, *spec_of(leaf))
        is_due = (step > 0) & (step % spec.redraw == 0)
        return jax.lax.cond(is_due, lambda: spec.init(draw_key, spec.shape, sharding).astype(leaf.dtype), lambda: leaf)

    return jax.tree_util.tree_map_with_path(make, specs, params)


def _leaf_key(key: jax.Array, path: jax.tree_util.KeyPath) -> jax.Array:
    return jax.random.fold_in(key, zlib.crc32(jax.tree_util.keystr(path).encode()))


def abstract(specs, mesh: Mesh | None = None):
    """`jax.ShapeDtypeStruct` of every parameter, sharded where a mesh is given: nothing is allocated."""

    def shape(spec):
        return jax.ShapeDtypeStruct(spec.shape, jnp.dtype(spec.dtype), sharding=_sharding(spec, mesh) if mesh else None)

    return jax.tree.map(shape, specs)


def shardings(specs, mesh: Mesh):
    """`NamedSharding` of every parameter, by the rules table `AXES`. Raises ValueError where the mesh does not divide
    an axis, with the name of the parameter."""
    return jax.tree_util.tree_map_with_path(
        lambda path, spec: _sharding(spec, mesh, jax.tree_util.keystr(path).lstrip(".")), specs
    )


def count_params(specs) -> int:
    """Number of parameters, the padding of the vocabulary left out."""
    return sum(math.prod(spec.shape) - spec.padding for spec in jax.tree.leaves(specs))


def decay_mask(specs):
    """True for every parameter that weight decay applies to: matrices and tables, not biases and norms."""
    return jax.tree.map(lambda spec: spec.decay, specs)


def trained_mask(specs):
    """True for every parameter that the optimizer changes."""
    return jax.tree.map(lambda spec: spec.trained, specs)


def constant(value: float) -> Callable[..., jax.Array]:
    """The initializer of a constant."""

    def init(key, shape, sharding):
        return jnp.full(shape, value, jnp.float32, out_sharding=sharding)

    return init


def _spec(config: Config, axes: str, init: Callable[..., jax.Array], sizes: dict[str, int]) -> Spec:
    """A parameter that is not decayed. Raises ValueError for a letter without a size."""
    sizes = config.sizes | sizes
    for letter in axes:
        if letter not in sizes or (letter.isupper() and letter not in AXES):
            raise ValueError(f"axis {letter} of {axes!r} has no size; give {letter}=SIZE, in lower case")
    shape = tuple(map(sizes.__getitem__, axes))
    padding = math.prod(shape) // sizes["V"] * (sizes["V"] - config.vocab) if "V" in axes else 0
    return Spec(axes, shape, init, decay=False, padding=padding, dtype=config.param_dtype)


def _sharding(spec: Spec, mesh: Mesh, name: str = "") -> NamedSharding:
    return NamedSharding(mesh, partition(spec.axes, spec.shape, mesh, name))
