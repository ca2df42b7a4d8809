"""Checkpoints that are read: every file is compared with its checksum before."""

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, final

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from tfm.options.json_text import read_object
from tfm.params import PyTree
from train import UserError
from train.devices import distributed
from train.files import buckets
from train.files.buckets import Folder
from train.runs import manifest
from train.runs.checkpoint import by_name, silence_orbax, training_only
from train.runs.paths import checkpoint_steps, unfinished_names
from train.runs.state import State
from train.settings.gate import user_errors

DAMAGED = "damaged"  # the folder for checkpoints that are set aside


def load_params(
    folder: Folder,
    like: PyTree,
    log: Callable[[str], None],
    verify: str = "all",
    best: bool = False,
    average: int = 1,
) -> PyTree:
    """The parameters of a folder of checkpoints: the newest, the best, or the mean of the newest `average` ones.

    They have the shapes, dtypes and shardings of `like`. Raises UserError if shapes differ, or if a checkpoint is
    missing or damaged.
    """
    checkpoints = SavedCheckpoints(folder, verify)
    if not checkpoints.steps:
        raise UserError(
            f"{folder if buckets.is_bucket(folder) else folder.parent} holds no checkpoint to take weights from"
        )
    checkpoints.log_unfinished(log)
    if average > 1:
        return checkpoints.restore_average(like, average)
    return checkpoints.restore_params(like, best, log)


@final
class SavedCheckpoints:
    """The checkpoints of a run folder, by step. `verify` is --checkpoint.verify."""

    def __init__(self, folder: Folder, verify: str = "all"):
        self.folder = buckets.absolute(folder)
        self.run = self.folder if buckets.is_bucket(folder) else self.folder.parent
        self._verify = verify
        silence_orbax()
        self._arrays = ocp.Checkpointer(ocp.StandardCheckpointHandler())

    @property
    def steps(self) -> list[int]:
        """The steps of the checkpoints that took their names, in order."""
        return checkpoint_steps(self.folder)

    def log_unfinished(self, log: Callable[[str], None]):
        """Names the checkpoints that were never finished."""
        for name in unfinished_names(self.folder):
            log(f"checkpoint {name} was never finished; passing over it")

    def restore(
        self, like: State, log: Callable[[str], None], before: int | None = None
    ) -> tuple[State, dict[str, object], int]:
        """State, note and step of the newest whole checkpoint, with the shapes, dtypes and shardings of `like`.

        Logs damaged checkpoints, and sets them aside: the run must be able to save their steps again. With `before`,
        only checkpoints of earlier steps are read, and all stay where they are. Raises UserError if none is whole, or
        if it is of another model.
        """
        self.log_unfinished(log)
        damaged = []
        for step in reversed(self.steps):
            if before is not None and step >= before:
                continue
            reason = self.damage(step, ["params", "opt"])
            if reason is None:
                break
            log(f"checkpoint {step} cannot be read ({reason}); falling back to the one before")
            damaged.append(step)
        else:
            raise UserError(f"{self.folder} holds no whole checkpoint; start a new run")
        params = self._read(step, "params", by_name(like.eval_params))
        fields = self._read(step, "opt", training_only(like))
        name = "params" if like.ema is None else "ema"
        state = dataclasses.replace(like, **fields, **{name: _unflatten(params, like.eval_params)})
        note = self._note(step)
        if before is None:
            damaged += [older for older in self.steps if older < step and self.damage(older)]
            self._set_aside(damaged)
        return state, note, step

    def restore_params(self, like: PyTree, best: bool, log: Callable[[str], None]) -> PyTree:
        """The parameters of the newest checkpoint, or of the best one. Raises UserError if it is damaged.

        Logs that the best one is gone, and the newest is taken.
        """
        while True:
            step = self._best_step(log) if best else self.steps[-1]
            try:
                return self._params(step, like)
            except UserError:
                if step in self.steps:
                    raise  # else a run that goes on has replaced it by newer ones

    def restore_average(self, like: PyTree, count: int) -> PyTree:
        """The mean, in float32, of the newest `count` checkpoints (Vaswani et al. 2017, section 6.1)."""
        steps = self.steps[-count:]
        if len(steps) < count:
            raise UserError(
                f"{self.run} has {len(steps)} checkpoints to average, not {count}; train with --checkpoint.keep={count}"
            )
        total = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), self._params(steps[0], like))
        for step in steps[1:]:
            total = jax.tree.map(jnp.add, total, self._params(step, like))
        return jax.tree.map(lambda leaf, target: (leaf / count).astype(target.dtype), total, like)

    def best_metric(self, goal: Callable[..., Any]) -> tuple[int, float] | None:
        """The step and the metric of the best evaluation of which a checkpoint is there; None if there is none.

        `goal` is min or max.
        """
        files = {step: self.folder / str(step) / "metrics" / "metrics" for step in self.steps}
        with user_errors():
            values = {step: read_object(path).get("metric") for step, path in files.items() if path.is_file()}
        metrics = {step: value for step, value in values.items() if isinstance(value, float)}
        step = goal(metrics, key=lambda at: metrics[at]) if metrics else None
        return None if step is None else (step, metrics[step])

    def _best_step(self, log: Callable[[str], None]) -> int:
        """The step with the best metric, as the newest checkpoint notes it; the newest one if it is gone."""
        newest = self.steps[-1]
        self._check_whole(newest)
        best = self._note(newest).get("best")
        step = best.get("step") if isinstance(best, dict) else None
        if type(step) is int and step not in self.steps:
            log(f"the best checkpoint of {self.run}, {step}, is gone; the newest, {newest}, is taken")
        return step if type(step) is int and step in self.steps else newest

    def _params(self, step: int, like: PyTree) -> PyTree:
        self._check_whole(step, ["params"])
        return _unflatten(self._read(step, "params", by_name(like)), like)

    def _check_whole(self, step: int, arrays: Iterable[str] = ()):
        """Raises UserError if some arrays of a checkpoint, or its values, are damaged."""
        if reason := self.damage(step, arrays):
            older = [before for before in self.steps if before < step]
            out = "" if buckets.is_bucket(self.folder) else f" --out={self.run}"
            repair = f"let python -m train.main --resume{out} go on from an older one"
            remedy = f"{repair}, or delete {self.folder / str(step)}" if older else "it is the oldest: start a new run"
            raise UserError(f"checkpoint {step} of {self.run} is damaged ({reason}); {remedy}")

    def damage(self, step: int, arrays: Iterable[str] = ()) -> str | None:
        """What is wrong with some arrays of a checkpoint, or with its values, which are small and always compared."""
        folder = self.folder / str(step)
        values = ["note", *(["metrics"] if (folder / "metrics").exists() else [])]
        return manifest.damage(folder, values) or manifest.damage(folder, arrays, self._verify)

    def _read(self, step: int, item: str, like: Mapping[str, PyTree]) -> PyTree:
        """The arrays of an item, with the structure, dtypes and shardings of `like`. Raises UserError for others."""
        path = self.folder / str(step) / item
        try:
            self._check_shapes(step, by_name(self._arrays.metadata(path).item_metadata.tree), by_name(like))
            return self._arrays.restore(path, args=_restore_args(like))
        except Exception as error:
            if self._verify == "all" or isinstance(error, UserError):
                raise
            message = str(error).partition("\n")[0]
            raise UserError(
                f"checkpoint {step} of {self.run} cannot be read ({type(error).__name__}: {message}); "
                "--checkpoint.verify=all names its damaged file"
            ) from error

    def _check_shapes(self, step: int, saved: Mapping[str, PyTree], like: Mapping[str, PyTree]):
        """Raises UserError if names or shapes differ: Orbax would say so in hundreds of lines."""
        for name in {**like, **saved}:
            saved_shape, shape = (getattr(tree.get(name), "shape", "absent") for tree in (saved, like))
            if saved_shape != shape:
                raise UserError(
                    f"{self.run} is of another architecture than its run.json says: {name} is "
                    f"{saved_shape} in checkpoint {step} and {shape} by run.json; restore run.json"
                )

    def _note(self, step: int) -> dict[str, object]:
        """The plain values of a checkpoint."""
        with user_errors():
            return read_object(self.folder / str(step) / "note" / "metadata")

    def _set_aside(self, steps: Iterable[int]):
        """Moves checkpoints out of the way, into a folder beside: what is left of them is not lost."""
        if distributed.is_main():
            for step in steps:
                _move(self.folder / str(step), self.run / DAMAGED / str(step))
        distributed.any_process(False)  # none goes on before they are moved


def _move(source: Folder, target: Folder):
    """Moves a folder to a place of which nothing stays."""
    if not isinstance(source, Path):
        buckets.move(source, target)
        return
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(exist_ok=True)
    os.replace(source, target)


def _unflatten(arrays: Mapping[str, PyTree], like: PyTree) -> PyTree:
    """The inverse of `by_name`: a tree with the structure of `like`."""
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in by_name(like)])


def _restore_args(like: PyTree):
    return ocp.args.StandardRestore(
        jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), like)
    )
