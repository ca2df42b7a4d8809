"""Low-rank updates of kernels that stay as they are (LoRA, Hu et al. 2021): a leaf that stands for a kernel.

The table of tokens may be one: a kernel from tokens to vectors. `tfm.ops` alone looks into it; layers, meshes and
checkpoints treat it as any subtree of parameters.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import replace

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.tree_util import KeyPath

from tfm.int8 import Int8
from tfm.params import ArraySpec, PyTree, Spec

# The axis of the rank, and the name of the table of tokens among targets.
RANK, TOKENS = "r", "tokens"


@struct.dataclass
class LowRank:
    """The kernel base + scale * down up (LoRA: Hu et al. 2021, section 4.1). With L in front where layers are stacked:

    base: [inputs, outputs], not trained
    down: [inputs, r]
    up: [r, outputs], zeros at first; of a table, `down` is
    key: of the dropout of the inputs of `down` in a training step (`with_dropout_keys`), one for each layer
    scale: of the update; alpha / r, or alpha / sqrt(r) (Kalajdzievski 2023, theorem 3.2)
    dropout: rate
    """

    base: Array
    down: Array
    up: Array
    key: Array | None = None
    scale: float = struct.field(pytree_node=False, default=1.0)
    dropout: float = struct.field(pytree_node=False, default=0.0)

    @property
    def is_stacked(self) -> bool:
        """Whether layers are stacked along a first axis."""
        return self.down.ndim + self.up.ndim - 2 > self.base.ndim

    @property
    def kernel(self) -> Array:
        """The sum as one kernel, in the dtype of the base."""
        layers = "L" if self.is_stacked else ""
        letters = iter("abcdefghijk")
        inputs = "".join(next(letters) for _ in range(self.down.ndim - 1 - len(layers)))
        outputs = "".join(next(letters) for _ in range(self.up.ndim - 1 - len(layers)))
        equation = f"{layers}{inputs}{RANK},{layers}{RANK}{outputs}->{layers}{inputs}{outputs}"
        sharding = jax.typeof(self.base).sharding
        out_sharding = None if sharding.mesh.empty else sharding
        down, up = self.down.astype(jnp.float32), self.up.astype(jnp.float32)
        update = jnp.einsum(equation, down, up, precision="highest", out_sharding=out_sharding)
        return (self.base + self.scale * update).astype(self.base.dtype)


def factors(equation: str, kernel: LowRank) -> tuple[tuple[str, Array], tuple[str, Array]]:
    """The equation of a product with a kernel -> the two products with its factors, and these: down and up, or up and
    down where the inputs of the product are the outputs of the kernel, as for a table of tokens behind the layers."""
    operands, output = equation.split("->")
    left, right = operands.split(",")
    summed = "".join(letter for letter in right if letter not in output)
    kept = "".join(letter for letter in right if letter in output)
    rows = "".join(letter for letter in left if letter not in summed)
    if right.startswith(summed):
        pair = (f"{summed}{RANK}", kernel.down), (f"{RANK}{kept}", kernel.up)
    else:
        pair = (f"{RANK}{summed}", kernel.up), (f"{kept}{RANK}", kernel.down)
    (first, first_factor), (second, second_factor) = pair
    return (f"{left},{first}->{rows}{RANK}", first_factor), (f"{rows}{RANK},{second}->{output}", second_factor)


def low_rank_specs(
    specs: PyTree, targets: Collection[str] | None, rank: int, scale: float, dropout: float = 0.0
) -> PyTree:
    """The spec tree with low-rank updates of the kernels that `targets` name, such as query; None: of all in layers.

    The table of an encoder or decoder is called `tokens`. Raises ValueError for a target that the model lacks, with the
    names of those that are there.
    """
    names = {name for path, spec in jax.tree_util.tree_leaves_with_path(specs) if (name := _target(path, spec))}
    targets = names - {TOKENS} if targets is None else targets
    unknown = [name for name in targets if name not in names]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no kernel of the model; it has {', '.join(sorted(names))}")

    def wrap(path, spec):
        target = _target(path, spec)
        return _low_rank_spec(spec, rank, scale, dropout, target == TOKENS) if target in targets else spec

    return jax.tree_util.tree_map_with_path(wrap, specs)


def _target(path: KeyPath, spec: Spec) -> str:
    """The name of the linear map whose kernel is at a path in layers, or TOKENS; "" for any other parameter."""
    words = jax.tree_util.keystr(path, simple=True, separator=".").split(".")
    if words[-2:] == ["embed", TOKENS]:
        return TOKENS
    return words[-2] if words[-1] == "kernel" and "layers" in words and spec.trained else ""


def _low_rank_spec(spec: ArraySpec, rank: int, scale: float, dropout: float, is_table: bool) -> LowRank:
    """The specs of an update. One factor is zeros at first: that of a table which its rows have for themselves."""
    layers = int(spec.axes.startswith("L"))
    cut = layers + spec.inputs
    fan_in = math.prod(spec.shape[layers:cut])

    def uniform(key, shape, sharding):
        limit = fan_in**-0.5
        return jax.random.uniform(key, shape, jnp.float32, -limit, limit, out_sharding=sharding)

    def normal(key, shape, sharding):
        return rank**-0.5 * jax.random.normal(key, shape, jnp.float32, out_sharding=sharding)

    def zeros(key, shape, sharding):
        return jnp.zeros(shape, jnp.float32, out_sharding=sharding)

    down = replace(spec, axes=spec.axes[:cut] + RANK, shape=(*spec.shape[:cut], rank), branch=False)
    up = replace(
        spec,
        axes=spec.axes[:layers] + RANK + spec.axes[cut:],
        shape=(*spec.shape[:layers], rank, *spec.shape[cut:]),
        inputs=1,
    )
    down_init, up_init = (zeros, normal) if is_table else (uniform, zeros)
    down, up = replace(down, init=down_init), replace(up, init=up_init)
    return LowRank(replace(spec, trained=False), down, up, scale=scale, dropout=dropout)


def _is_low_rank(node: object) -> bool:
    return isinstance(node, LowRank)


def _map(function: Callable[[LowRank], PyTree], params: PyTree) -> PyTree:
    """The tree with what the function makes of every low-rank kernel."""
    return jax.tree.map(lambda node: function(node) if _is_low_rank(node) else node, params, is_leaf=_is_low_rank)


def has_low_rank(params: PyTree) -> bool:
    """Whether a tree of parameters or specs has low-rank updates."""
    return any(map(_is_low_rank, jax.tree.leaves(params, is_leaf=_is_low_rank)))


def kernel_of(leaf: Array | LowRank | Int8) -> Array:
    """An array as it is, and the array that another leaf stands for."""
    return leaf.kernel if isinstance(leaf, LowRank | Int8) else leaf


def merge_low_rank(params: PyTree) -> PyTree:
    """The parameters with every low-rank update added to its kernel: those of a model without them."""
    return _map(lambda node: node.kernel, params)


def low_rank_base(params: PyTree) -> PyTree:
    """The parameters without their updates."""
    return _map(lambda node: node.base, params)


def with_base(params: PyTree, base: PyTree) -> PyTree:
    """The parameters with the arrays of `base`, a tree like `low_rank_base(params)`, under their updates."""
    return jax.tree.map(
        lambda node, kernel: replace(node, base=kernel) if _is_low_rank(node) else kernel,
        params,
        base,
        is_leaf=_is_low_rank,
    )


def with_dropout_keys(params: PyTree, key: Array | None) -> PyTree:
    """The parameters for one training step: a key for the dropout of every update of every layer; none without key."""
    nodes = [node for node in jax.tree.leaves(params, is_leaf=_is_low_rank) if _is_low_rank(node) and node.dropout]
    if key is None or not nodes:
        return params
    keys = iter(jax.random.split(jax.random.fold_in(key, 1), len(nodes)))  # the layers split the key itself

    def with_key(node: LowRank) -> LowRank:
        if not node.dropout:
            return node
        leaf_key = next(keys)
        return replace(node, key=jax.random.split(leaf_key, len(node.base)) if node.is_stacked else leaf_key)

    return _map(with_key, params)
