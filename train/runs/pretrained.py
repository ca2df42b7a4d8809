"""The weights that --init takes from a run folder or a Hugging Face folder, possibly of another task."""

import dataclasses
from collections.abc import Callable, Collection

import jax
from jax.sharding import Mesh

from tfm.catalogue.models.interpolation import interpolate_positions
from tfm.config.model import Config
from tfm.low_rank import low_rank_base, merge_low_rank, with_base
from tfm.models.classifier import Classifier
from tfm.models.heads import CausalLM
from tfm.params import PyTree
from train import UserError
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import open_folder
from train.settings.gate import user_errors


def load_parts(
    path: str, model: Config, params: PyTree, mesh: Mesh, log: Callable[[str], None], left: Collection[str] = ()
) -> tuple[PyTree, list[str]]:
    """Parameters with the parts (encoder, head, pooler, ...) that the folder has too, and the names of the fresh ones.

    Parts that are `left` stay fresh. Every model begins with its encoder or decoder; an encoder that is causal may
    start from a decoder. Positions of pictures of another size are interpolated. Raises UserError if the folder has no
    such part, or of other shapes.
    """
    folder = open_folder(path)
    if isinstance(folder, HfFolder) and folder.has_modules and folder.modules.trained_pool is None:
        log(f"{folder.modules.source}: {folder.modules}; the model alone is taken")
    source = merge_low_rank(folder.load(mesh, log))
    if not isinstance(source, type(low_rank_base(params))):
        source = folder.task.final_model(folder.config, source)
    if model.head.causal and isinstance(source, CausalLM):
        source = Classifier(encoder=source.decoder, pooler=None, output=None, table=source.table)
    source_model = folder.config.model
    pixels, source_pixels = (_pixels(shape) for shape in (model, source_model))
    if pixels is None or source_pixels is None or pixels == source_pixels:
        return take_parts(f"--init={path}", source, params, left)
    with jax.set_mesh(mesh), user_errors(f"--init={path}"):
        source = interpolate_positions(source_model, source, pixels)[1]
    taken, fresh = take_parts(f"--init={path}", source, params, left)
    log(f"positions of {path} are interpolated, from pictures of {_sides(source_pixels)} pixels to {_sides(pixels)}")
    return jax.device_put(taken, jax.tree.map(lambda leaf: leaf.sharding, params)), fresh


def heads_of_classes(specs: PyTree) -> list[str]:
    """The names of the parts of a model that have an output for each class."""
    base = low_rank_base(specs)
    parts = {field.name: jax.tree.leaves(getattr(base, field.name)) for field in dataclasses.fields(base)}
    return [name for name, leaves in parts.items() if any("C" in leaf.axes for leaf in leaves)]


def take_parts(origin: str, source: PyTree, params: PyTree, left: Collection[str] = ()) -> tuple[PyTree, list[str]]:
    """Parameters with the parts that the parameters `source` of another model have too, and the names of fresh ones.

    Those that are `left` stay fresh. `origin` names the other model in errors. Raises UserError for another
    architecture.
    """
    base = low_rank_base(params)
    parts = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
    main = next(iter(parts))
    if not hasattr(source, main):
        raise UserError(f"{origin} holds no {main}; start from a run of another task")
    _check_shapes(origin, main, parts[main], getattr(source, main))
    loaded = {
        name: jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), getattr(source, name), part)
        for name, part in parts.items()
        if part is not None and name not in left and _shapes(part) == _shapes(getattr(source, name, None))
    }
    fresh = [name for name, part in parts.items() if name not in loaded and part is not None]
    return with_base(params, dataclasses.replace(base, **loaded)), fresh


def _check_shapes(origin: str, name: str, part: PyTree, source: PyTree):
    """Raises UserError, with the first difference, if two trees of parameters differ in a shape."""
    shapes, source_shapes = _shapes(part), _shapes(source)
    for leaf in {**shapes, **source_shapes}:
        shape, source_shape = shapes.get(leaf, "absent"), source_shapes.get(leaf, "absent")
        if shape != source_shape:
            raise UserError(
                f"{origin} is of another architecture: {name}{leaf} is {source_shape} there and {shape} here"
            )


def _shapes(part: PyTree) -> dict[str, tuple[int, ...]]:
    """The shape of every array by its name."""
    return {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(part)}


def _pixels(model: Config) -> tuple[int, int] | None:
    """Height and width of the pictures that a model, or its tower, reads; None for one that reads none."""
    images = model.input if model.images is None else model.images.input
    pixels = getattr(images, "pixels", None)
    return None if pixels is None else pixels[:2]


def _sides(pixels: tuple[int, int]) -> str:
    return " x ".join(map(str, pixels))
