"""A model that starts and learns in proportion to a narrower one: the rate and the start that suit that one suit it.

Width: muP (Yang et al. 2022, table 3). Depth: CompleteP (Dey et al. 2025, table 1, alpha = 1), whose branches are
divided by the growth of the depth. A factor of a product is part of its kernel here: with updates of Adam, a factor in
front of a kernel is the same factor in its start and in its rate (Yang et al. 2022, lemma J.1).
"""

import dataclasses
import math

import jax

import tfm
from tfm.ops import Linear
from tfm.params import PyTree, Spec
from tfm.tables.residuals import RESIDUALS
from train import UserError
from train.settings.optim import Optim
from train.settings.schema import Run
from train.tasks.record import Task


def specs_of(task: Task, run: Run) -> PyTree:
    """The specs of the model of a run, which start and learn in proportion to the base model's. Raises UserError for
    models that have no such proportion."""
    optim, specs = run.optim, task.specs(run)
    if optim.base_width:
        _refuse_tied(task, run, specs)
        base = task.specs(dataclasses.replace(run, model=at_width(run.model, optim.base_width)))
        specs = jax.tree_util.tree_map_with_path(_of_width, specs, base)
    if optim.base_layers:
        _check_branches(run.model)
        share = optim.base_layers / run.model.layers
        specs = jax.tree.map(lambda node: _of_depth(node, share), specs, is_leaf=lambda node: isinstance(node, Linear))
    return specs


def optim_of(run: Run) -> Optim:
    """The options of the optimizer, with an `eps` in proportion to gradients, which shrink as width and depth grow
    (Dey et al. 2025, table 1)."""
    optim, model = run.optim, run.model
    growth = model.width / (optim.base_width or model.width)
    growth *= model.layers / optim.base_layers if optim.base_layers else 1
    return optim if growth == 1 else dataclasses.replace(optim, eps=optim.eps / growth)


def at_width(model: tfm.Config, width: int) -> tfm.Config:
    """The model at another width, where heads keep their size. Raises UserError where sizes do not grow with the
    width."""
    sizes = {"width": width}
    for name in ("heads", "kv_heads", "ffn"):
        size = getattr(model, name)
        if size is not None:
            sizes[name], left = divmod(size * width, model.width)
            if left or not sizes[name]:
                raise UserError(
                    f"--optim.base-width={width} needs a model whose {name} grow with its width: {name}={size} of "
                    f"width={model.width} would be {size * width / model.width:g}; choose another width or {name}"
                )
    if model.stages or model.images:
        raise UserError("--optim.base-width is for models of one width; leave it out")
    try:
        return tfm.override(model, sizes)
    except ValueError as error:
        raise UserError(f"--optim.base-width={width}: {error}") from error


def _refuse_tied(task: Task, run: Run, specs: PyTree):
    """Raises UserError where the token table is an output too: it would have to learn at two rates."""
    model = dataclasses.replace(run.model, tie_embeddings=False)
    untied = task.specs(dataclasses.replace(run, model=model))
    if len(jax.tree.leaves(untied)) > len(jax.tree.leaves(specs)):
        raise UserError("--optim.base-width needs an output table of its own; add --model.tie-embeddings=false")


def _of_width(path: jax.tree_util.KeyPath, spec: Spec, base: Spec) -> Spec:
    """The spec of a parameter, which starts and learns in proportion to that of the base model.

    Starts of products of vectors fall with the root of the growth of their inputs, those of outputs, which do not grow,
    with the growth; rates of both with the growth. Tables, biases and norms are alike.
    """
    first = len(spec.axes) - len(spec.axes.removeprefix("L"))
    shape = [size / base_size for size, base_size in zip(spec.shape, base.shape, strict=True)][first:]
    growths = math.prod(shape[: spec.inputs]), math.prod(shape[spec.inputs :])
    is_output_table = spec.axes.startswith("V") and ".embed." not in jax.tree_util.keystr(path)
    inputs, outputs = reversed(growths) if is_output_table else growths
    if inputs == 1 or not spec.inputs:
        return spec
    return _in_proportion(
        dataclasses.replace(spec, init=base.init), inputs**-0.5 if outputs > 1 else 1 / inputs, 1 / inputs
    )


def _of_depth(node: Linear | Spec, share: float) -> Linear | Spec:
    """A product at the end of a branch, whose result has this share; others are as they are."""
    return jax.tree.map(lambda spec: _in_proportion(spec, share, share), node) if _ends_branch(node) else node


def _ends_branch(node: Linear | Spec) -> bool:
    kernel = node.kernel if isinstance(node, Linear) else None
    return isinstance(kernel, Spec) and kernel.branch and kernel.axes.endswith("D")


def _in_proportion(spec: Spec, start: float, rate: float) -> Spec:
    """A spec whose values start at so many times the size, and which has so many times the rate."""
    return dataclasses.replace(spec, init=lambda *draw: start * spec.init(*draw), rate=rate * spec.rate)


def _check_branches(model: tfm.Config):
    """Raises UserError unless blocks add to a stream that they leave as it is, and what they add ends in a product."""
    if not model.layers:
        raise UserError("--optim.base-layers is for models with layers, and --model.layers=0; leave it out")
    for kind in model.kinds:
        if not RESIDUALS[kind.residual.name].final_norm:
            raise UserError(
                "--optim.base-layers is for blocks that leave the stream as it is, not for "
                f"residual={kind.residual.name}; say --model.residual=pre"
            )
        block = tfm.block_specs(kind, model)
        for options, part in ((kind.mixer, block.mixer), (kind.feed_forward, block.feed_forward)):
            nodes = jax.tree.leaves(part, is_leaf=lambda node: isinstance(node, Linear))
            if not any(map(_ends_branch, nodes)):
                raise UserError(
                    f"--optim.base-layers is for layers that end in a product, and {options.name} does not; "
                    "leave it out"
                )
