"""The weights that --init takes from a run folder or a Hugging Face folder, possibly of another task."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from tfm.low_rank import low_rank_base, merge_low_rank, with_base
from tfm.models.classifier import Classifier
from tfm.models.heads import CausalLM
from train import UserError
from train.runs.folder import open_folder


def load_parts(path: str, params: Any, mesh, log: Callable[[str], None], causal: bool = False) -> tuple[Any, list[str]]:
    """Parameters with the parts (encoder, head, pooler, ...) that the folder has too, and the names of the fresh ones.

    Every model begins with its encoder or decoder; an encoder that is causal may start from a decoder. Raises UserError
    if the folder has no such part, or of other shapes.
    """
    source = merge_low_rank(open_folder(path).load(mesh, log))
    if causal and isinstance(source, CausalLM):
        source = Classifier(encoder=source.decoder, pooler=None, output=None)
    return take_parts(f"--init={path}", source, params)


def take_parts(origin: str, source: Any, params: Any) -> tuple[Any, list[str]]:
    """The same from the parameters of another model; `origin` is what errors call it."""
    base = low_rank_base(params)
    parts = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
    main = next(iter(parts))
    if not hasattr(source, main):
        raise UserError(f"{origin} holds no {main}; start from a run of another task")
    _check_shapes(origin, main, parts[main], getattr(source, main))
    loaded = {
        name: jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), getattr(source, name), part)
        for name, part in parts.items()
        if part is not None and _shapes(part) == _shapes(getattr(source, name, None))
    }
    fresh = [name for name, part in parts.items() if name not in loaded and part is not None]
    return with_base(params, dataclasses.replace(base, **loaded)), fresh


def _check_shapes(origin: str, name: str, part: Any, source: Any):
    """Raises UserError, with the first difference, if two trees of parameters differ in a shape."""
    shapes, source_shapes = _shapes(part), _shapes(source)
    for leaf in {**shapes, **source_shapes}:
        shape, source_shape = shapes.get(leaf, "absent"), source_shapes.get(leaf, "absent")
        if shape != source_shape:
            raise UserError(
                f"{origin} is of another architecture: {name}{leaf} is {source_shape} there and {shape} here"
            )


def _shapes(part: Any) -> dict[str, tuple[int, ...]]:
    """The shape of every array by its name."""
    return {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(part)}
