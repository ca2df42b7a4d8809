"""Trained models out of run folders and Hugging Face folders: as they are, or the parts of them that another task can start from."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

import tfm
from train import UserError, tasks
from train.runs import checkpoint, hf_folder
from train.runs import folder as folders
from train.settings import flags
from train.settings.schema import Run


class Trained(NamedTuple):
    """What a run made: its configuration, processor, what run.json says of its data, and the parameters."""

    run: Run
    processor: Any
    facts: Mapping[str, Any]
    params: Any


def load(folder: str, mesh=None, say: Callable[[str], None] = print, average: int = 1) -> Trained:
    """The model in a run folder or a Hugging Face folder, on a mesh, or on one device; of a run, the best weights where it had patience,
    else the last, or the mean of the last few.

    Raises UserError where something is missing. `say` is told of checkpoints that cannot be read.
    """
    run = flags.build(Run, folders.read(folder))
    saved = folders.read_saved(folder)
    mesh = mesh or tfm.make_mesh(devices=jax.devices()[:1])
    if hf_folder.here(folder):
        return Trained(run, saved.processor, saved.facts, hf_folder.params(folder, mesh, say))
    if run.optim.ema:  # an average is in float32, whatever was trained
        run = dataclasses.replace(run, model=dataclasses.replace(run.model, param_dtype="float32"))
    like = tfm.abstract(tasks.find(run.task.name).specs(run), mesh)
    params = checkpoint.load_params(folder, like, say, best=run.eval.patience > 0, average=average)
    return Trained(run, saved.processor, saved.facts, params)


def parts_of(folder: str, fresh: Any, mesh, say: Callable[[str], None]) -> tuple[Any, list[str]]:
    """The parameters `fresh` with the parts (encoder, head, pooler, ...) that the run in `folder` has too; and the names of the rest.

    Raises UserError where it has no such encoder or decoder, the first part of every model.
    """
    theirs = load(folder, mesh, say).params
    parts = {field.name: getattr(fresh, field.name) for field in dataclasses.fields(fresh)}
    main = next(iter(parts))
    if not hasattr(theirs, main):
        raise UserError(f"--init={folder} holds no {main}; start from a run of another task")
    ours, others = _shapes(parts[main]), _shapes(getattr(theirs, main))
    if ours != others:
        name = next(name for name in {**ours, **others} if ours.get(name) != others.get(name))
        there, here = others.get(name, "absent"), ours.get(name, "absent")
        raise UserError(f"--init={folder} is of another architecture: {main}{name} is {there} there and {here} here")
    taken = {
        name: jax.tree.map(lambda found, ours: found.astype(ours.dtype), getattr(theirs, name), part)
        for name, part in parts.items()
        if part is not None and _shapes(part) == _shapes(getattr(theirs, name, None))
    }
    return dataclasses.replace(fresh, **taken), [
        name for name, part in parts.items() if name not in taken and part is not None
    ]


def _shapes(part: Any) -> dict[str, tuple[int, ...]]:
    """Name and shape of every array."""
    return {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(part)}
