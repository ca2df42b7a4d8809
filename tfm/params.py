"""Parameters are declared once, as a tree of specs; values, shapes, shardings, counts and decay masks are read off it.

The spec tree has the structure of the parameter tree: the same dataclasses with a `Spec` where the array will be (typed Any for
that reason), and None where a variant has no such parameter.
"""

import dataclasses
import math
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding

from tfm.axes import AXES, partition
from tfm.config.model import Config


@dataclasses.dataclass(frozen=True)
class Spec:
    """One parameter: its axes (letters of `AXES`), its stored shape, how it starts, whether weight decay applies, and its stored dtype.

    `padding` of the elements exist only to round the vocabulary up.
    """

    axes: str
    shape: tuple[int, ...]
    init: Callable[..., jax.Array]
    decay: bool
    padding: int = 0
    dtype: str = "float32"


def weight_spec(config: Config, axes: str) -> Any:
    """A matrix or table: truncated normal of `config.init_std` cut at two standard deviations (Devlin et al. 2018), decayed."""

    def init(key, shape, sharding):
        return config.init_std * jax.random.truncated_normal(key, -2, 2, shape, jnp.float32, out_sharding=sharding)

    return _spec(config, axes, init, decay=True)


def bias_spec(config: Config, axes: str) -> Any:
    """A bias: zeros, not decayed."""
    return _spec(
        config, axes, lambda key, shape, sharding: jnp.zeros(shape, jnp.float32, out_sharding=sharding), decay=False
    )


def scale_spec(config: Config, axes: str) -> Any:
    """A norm's scale: ones, not decayed."""
    return _spec(
        config, axes, lambda key, shape, sharding: jnp.ones(shape, jnp.float32, out_sharding=sharding), decay=False
    )


def stacked(specs, layers: int):
    """The specs of `layers` equal layers, stacked along a new leading axis L."""

    def stack(spec):
        return dataclasses.replace(
            spec, axes="L" + spec.axes, shape=(layers, *spec.shape), padding=layers * spec.padding
        )

    return jax.tree.map(stack, specs)


def init(specs, key: jax.Array, mesh: Mesh | None = None):
    """Parameters, each in the dtype of its spec, sharded where a mesh is given (then inside `jax.set_mesh(mesh)`).

    A leaf's values depend on the key and its path, not on its neighbours or the mesh.
    """

    def make(path, spec):
        leaf_key = jax.random.fold_in(key, zlib.crc32(jax.tree_util.keystr(path).encode()))
        return spec.init(leaf_key, spec.shape, _sharding(spec, mesh) if mesh else None).astype(spec.dtype)

    return jax.tree_util.tree_map_with_path(make, specs)


def abstract(specs, mesh: Mesh | None = None):
    """`jax.ShapeDtypeStruct` of every parameter, sharded where a mesh is given: nothing is allocated."""

    def shape(spec):
        return jax.ShapeDtypeStruct(spec.shape, jnp.dtype(spec.dtype), sharding=_sharding(spec, mesh) if mesh else None)

    return jax.tree.map(shape, specs)


def shardings(specs, mesh: Mesh):
    """`NamedSharding` of every parameter, by the rules table `AXES`. Raises ValueError where the mesh does not divide an axis, with the
    name of the parameter."""
    return jax.tree_util.tree_map_with_path(
        lambda path, spec: _sharding(spec, mesh, jax.tree_util.keystr(path).lstrip(".")), specs
    )


def count_params(specs) -> int:
    """Number of parameters, the padding of the vocabulary left out."""
    return sum(math.prod(spec.shape) - spec.padding for spec in jax.tree.leaves(specs))


def decay_mask(specs):
    """True for every parameter that weight decay applies to: matrices and tables, not biases and norms."""
    return jax.tree.map(lambda spec: spec.decay, specs)


def _spec(config: Config, axes: str, init, decay: bool) -> Spec:
    unknown = set(axes) - set(AXES)
    assert not unknown, f"axes {unknown} are not in the letter table"
    shape = tuple(config.sizes[letter] for letter in axes)
    real = tuple(config.vocab if letter == "V" else config.sizes[letter] for letter in axes)
    return Spec(axes, shape, init, decay, padding=math.prod(shape) - math.prod(real), dtype=config.param_dtype)


def _sharding(spec: Spec, mesh: Mesh, name: str = "") -> NamedSharding:
    return NamedSharding(mesh, partition(spec.axes, spec.shape, mesh, name))
