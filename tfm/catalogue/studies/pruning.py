"""Heads that are not needed: gates on the heads of a model, and the model without some of them.

A gate multiplies what a head adds to the stream. Here it multiplies the rows of the output projection that the head
meets, which is the same: no layer knows of gates. Low-rank updates are merged before (`tfm.merge_low_rank`).

All layers keep as many heads, for layers are stacked and share their shapes. Where groups of query heads share keys
and values, every group keeps as many.
"""

from collections.abc import Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import KeyPath
from jax.typing import ArrayLike

from tfm.attention.project import Attention
from tfm.config.model import Config
from tfm.interfaces import Block
from tfm.low_rank import kernel_of
from tfm.params import PyTree

# By the name of an attention, such as encoder.layers.period.0.mixer: a number for each head, [K,G], or [L,K,G] where
# layers are stacked.
Gates = dict[str, Array]

# The stretched hard concrete distribution: its temperature and its interval (Louizos et al. 2018, section 4).
TEMPERATURE, LOW, HIGH = 2 / 3, -0.1, 1.1


def head_gates(params: PyTree) -> Gates:
    """Open gates for all heads of a model: ones, float32."""
    return {name: jnp.ones(kernel_of(node.output.kernel).shape[:-2]) for name, node in _attentions(params).items()}


def with_gates(params: PyTree, gates: Mapping[str, ArrayLike]) -> PyTree:
    """The parameters of a model whose heads are multiplied by gates."""

    def gated(path, node):
        if not isinstance(node, Attention):
            return node
        kernel = kernel_of(node.output.kernel)
        factors = jnp.asarray(gates[_name(path)])[..., None, None].astype(kernel.dtype)
        return replace(node, output=replace(node.output, kernel=kernel * factors))

    return jax.tree_util.tree_map_with_path(gated, params, is_leaf=_is_attention)


def hard_concrete(log_alpha: Array, key: Array | None = None) -> Array:
    """log_alpha [...] -> gates [...] in [0, 1], drawn with the key (Louizos et al. 2018, eq. 10 and 11); without a key,
    those that a trained model has (eq. 13)."""
    logits = log_alpha
    if key is not None:
        noise = jax.random.uniform(key, log_alpha.shape, minval=1e-6, maxval=1 - 1e-6)
        logits = (jnp.log(noise) - jnp.log1p(-noise) + log_alpha) / TEMPERATURE
    return jnp.clip(jax.nn.sigmoid(logits) * (HIGH - LOW) + LOW, 0, 1)


def open_probability(log_alpha: Array) -> Array:
    """log_alpha [...] -> the probability [...] that a gate is not 0 (Louizos et al. 2018, eq. 12)."""
    return jax.nn.sigmoid(log_alpha - TEMPERATURE * np.log(-LOW / HIGH))


def cut_axis(config: Config) -> tuple[str, int]:
    """The letter of the axis along which heads are cut, and its size: K, or G where query heads form groups."""
    letter = "K" if config.sizes["G"] == 1 else "G"
    return letter, config.sizes[letter]


def top_heads(scores: np.ndarray, letter: str, count: int) -> np.ndarray:
    """scores [...,K,G] -> places of the `count` best heads, ascending: int [...,count] along K, [...,K,count] along
    G."""
    rows = scores[..., 0] if letter == "K" else scores
    return np.sort(np.argsort(-rows, axis=-1, kind="stable")[..., :count], axis=-1)


def gates_of(places: np.ndarray, shape: tuple[int, ...], letter: str) -> np.ndarray:
    """Places as `top_heads` returns them -> gates of a shape [...,K,G]: 1 for these heads, 0 for the rest."""
    gates = np.zeros(shape, np.float32)
    np.put_along_axis(gates[..., 0] if letter == "K" else gates, places, 1.0, axis=-1)
    return gates


def cut_config(config: Config, letter: str, count: int) -> Config:
    """The configuration of a model with `count` heads along an axis; heads keep their size.

    Raises ValueError for a variant that gives a head what depends on how many there are.
    """
    for options in (options for kind in config.kinds for options in kind):
        if getattr(getattr(options, "pattern", options), "depends_on_heads", False):
            raise ValueError(f"{options.name} gives a head what depends on how many heads there are")
    sizes = config.sizes
    kv_heads = count if letter == "K" else sizes["K"]
    heads = count if letter == "K" else count * kv_heads
    return replace(config, heads=heads, kv_heads=config.kv_heads and kv_heads, head_size=sizes["H"])


def cut_heads(params: PyTree, specs: PyTree, places: Mapping[str, np.ndarray], letter: str) -> PyTree:
    """The parameters of the model that has these heads alone, on the host.

    specs: the spec tree of the model
    places: by the name of an attention, what `top_heads` returned
    letter: the axis that is cut

    Raises ValueError for parameters of heads that all layers share, and for a mixer with several attentions.
    """

    def cut(path, spec, node):
        name = _name(path)
        if not isinstance(spec, Block):
            if letter in spec.axes:
                raise ValueError(f"{name} has values for each head, which all layers share")
            return node
        parts = {"mixer": "mixer", "position": "mixer", "cross": "cross"}
        changes = {
            part: _cut_part(getattr(spec, part), getattr(node, part), _places_in(f"{name}.{owner}", places), letter)
            for part, owner in parts.items()
        }
        return replace(node, **changes)

    return jax.tree_util.tree_map_with_path(cut, specs, params, is_leaf=lambda node: isinstance(node, Block))


def _places_in(name: str, places: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The places of the attentions in a part of a block."""
    return [rows for key, rows in places.items() if f"{key}.".startswith(f"{name}.")]


def _cut_part(specs: PyTree, part: PyTree, places: list[np.ndarray], letter: str) -> PyTree:
    """The parameters of a mixer, of positions in it, or of cross-attention."""

    def cut(path, spec, leaf):
        if letter not in spec.axes:
            return leaf
        if len(places) != 1 or ("K" if letter == "G" else letter) not in spec.axes:
            raise ValueError(f"{_name(path)} of a layer has values for each head, and no output projection of its own")
        return _take(spec.axes, np.asarray(leaf), places[0], letter)

    return jax.tree_util.tree_map_with_path(cut, specs, part)


def _take(axes: str, leaf: np.ndarray, places: np.ndarray, letter: str) -> np.ndarray:
    """The elements of a leaf at places along the axis of a letter, for each layer and, along G, for each K."""
    letters = ("L" if axes.startswith("L") else "") + ("KG" if letter == "G" else "K")
    shape = [1] * leaf.ndim
    for size, name in zip(places.shape, letters, strict=True):
        shape[axes.index(name)] = size
    return np.take_along_axis(leaf, places.reshape(shape), axes.index(letter))


def _is_attention(node: object) -> bool:
    return isinstance(node, Attention)


def _attentions(params: PyTree) -> dict[str, Attention]:
    """The attentions of a model by name."""
    leaves = jax.tree_util.tree_leaves_with_path(params, is_leaf=_is_attention)
    return {_name(path): node for path, node in leaves if isinstance(node, Attention)}


def _name(path: KeyPath) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
