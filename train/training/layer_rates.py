"""How fast each layer learns, as a share of the learning rate."""

import dataclasses
from collections.abc import Iterator

import jax
import numpy as np
import optax

from tfm.layers.stack import layer_indices
from tfm.models.encoder import Encoder
from tfm.params import PyTree


def scale_by_layer(specs: PyTree, decay: float | None, top: int | None) -> optax.GradientTransformation | None:
    """Updates times the share of their layer: `decay` to the power of its distance from the head.

    Heads and last norms have 1, the last layer has `decay`, embeddings the smallest share (Clark et al. 2020,
    appendix A); what merges patches has that of the layer behind it. Layers below the `top` ones, and embeddings then,
    have 0. None where all shares are 1.
    """
    if decay is None and top is None:
        return None
    shares = dict(_shares(specs, 1.0 if decay is None else decay, top))

    def scaled(path, update):
        share = shares.get(jax.tree_util.keystr(path))
        return update if share is None else update * share.reshape(-1, *[1] * (update.ndim - 1)).astype(update.dtype)

    return optax.stateless(lambda updates, params: jax.tree_util.tree_map_with_path(scaled, updates))


def _shares(specs: PyTree, decay: float, top: int | None) -> Iterator[tuple[str, np.ndarray]]:
    """The path of every parameter of embeddings and layers, and its share: [1], or [L] of stacked layers."""
    for field in dataclasses.fields(specs):
        model = getattr(specs, field.name)
        if not isinstance(model, Encoder):
            continue
        stages = model.all_stages
        counts = {path: _count(stage) for path, stage in stages.items()}
        count, below = sum(counts.values()), 0
        share = [decay ** (count - layer) * (top is None or layer >= count - top) for layer in range(count)]
        for path, stage in stages.items():
            embed_share = share[below] if below else decay ** (count + 1) * (top is None)
            for leaf, value in _stage_shares(stage, embed_share, share[below:]):
                yield f".{field.name}{path}{leaf}", value
            below += counts[path]


def _count(stage: Encoder) -> int:
    """How many layers a stage has."""
    indices = layer_indices(stage.layers).values()
    return 1 + max((layer for trees in indices for layers in trees for layer in layers), default=-1)


def _stage_shares(stage: Encoder, embed_share: float, share: list[float]) -> Iterator[tuple[str, np.ndarray]]:
    """The path of every parameter of one stage, and its share: of its embeddings and of its layers."""
    for path, _ in jax.tree_util.tree_leaves_with_path(stage.embed):
        yield f".embed{jax.tree_util.keystr(path)}", np.array([embed_share])
    for part, trees in layer_indices(stage.layers).items():
        for index, layers in enumerate(trees):
            of_layers = np.array([share[layer] for layer in layers])
            for path, _ in jax.tree_util.tree_leaves_with_path(getattr(stage.layers, part)[index]):
                yield f".layers.{part}[{index}]{jax.tree_util.keystr(path)}", of_layers
