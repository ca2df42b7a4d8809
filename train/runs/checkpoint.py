"""Checkpoints of the training state, by Orbax: written in the background; the newest few and the best one are kept."""

import dataclasses
import errno
import functools
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from train import UserError
from train.runs.folder import CHECKPOINTS

if TYPE_CHECKING:
    from train.training.step import State

Result = TypeVar("Result")

# What Orbax and TensorStore raise for a checkpoint whose files are missing, truncated or damaged.
_DAMAGED = (OSError, ValueError, KeyError, TypeError)

# What they say of a full disk.
_DISK_FULL = ("No space left on device", "Disk quota exceeded", "RESOURCE_EXHAUSTED: ENOSPC")


def load_params(path: str | Path, like: Any, log: Callable[[str], None], best: bool = False, average: int = 1) -> Any:
    """The parameters of a run: the newest, the best, or the mean of the newest `average` checkpoints.

    They have the shapes, dtypes and shardings of `like`. Raises UserError if shapes differ or checkpoints are missing.
    """
    checkpoints = Checkpoints(Path(path) / CHECKPOINTS, read_only=True)
    if checkpoints.latest is None:
        raise UserError(f"{path} holds no checkpoint to take weights from")
    if average > 1:
        return checkpoints.restore_average(like, average)
    return checkpoints.restore_params(like, log, best)


@final
class Checkpoints:
    """The checkpoints of one run folder, by step."""

    def __init__(self, folder: Path, keep: int = 1, read_only: bool = False, goal: Callable = min):
        """`goal` is min or max: whether the best checkpoint has the lowest or the highest metric."""
        best = BestN(
            get_metric_fn=lambda metrics: metrics["metric"],
            reverse=goal is min,
            n=1,
            keep_checkpoints_without_metrics=False,
        )
        self.folder = folder.absolute()
        self._unfinished = sorted(path.name for path in self.folder.glob("*orbax-checkpoint-tmp*"))
        self._read_only = read_only
        _silence_orbax()
        options = ocp.CheckpointManagerOptions(
            preservation_policy=AnyPreservationPolicy([LatestN(keep), best]),
            create=not read_only,
            cleanup_tmp_directories=not read_only,
        )
        arrays = ocp.StandardCheckpointHandler
        handlers = {"params": arrays(), "opt": arrays(), "note": ocp.JsonCheckpointHandler()}
        self._manager = ocp.CheckpointManager(self.folder, options=options, item_handlers=handlers)

    @property
    def latest(self) -> int | None:
        """Step of the newest checkpoint."""
        return self._manager.latest_step()

    def save(self, step: int, state: "State", note: Mapping[str, Any], metric: float | None):
        """Starts to write the state and a note of plain values; returns before they are on disk."""
        items = ocp.args.Composite(
            params=ocp.args.StandardSave(_by_name(state.eval_params)),
            opt=ocp.args.StandardSave(_training_only(state)),
            note=ocp.args.JsonSave(dict(note)),
        )
        with disk_errors(self.folder):
            self._manager.save(step, args=items, metrics=None if metric is None else {"metric": metric})

    def restore(self, like: "State", log: Callable[[str], None]) -> tuple["State", dict[str, Any], int]:
        """State, note and step of the newest readable checkpoint, with the shapes, dtypes and shardings of `like`."""
        items = ocp.args.Composite(
            params=_restore_args(_by_name(like.eval_params)),
            opt=_restore_args(_training_only(like)),
            note=ocp.args.JsonRestore(),
        )
        saved, step = self._newest(lambda step: self._manager.restore(step, args=items), log)
        params = _unflatten(saved["params"], like.eval_params)
        name = "params" if like.ema is None else "ema"
        return dataclasses.replace(like, **saved["opt"], **{name: params}), saved["note"], step

    def restore_params(self, like: Any, log: Callable[[str], None], best: bool) -> Any:
        """The parameters of the newest readable checkpoint, or of the best one."""
        return self._newest(lambda step: self._params(step, like), log, self._best_step() if best else None)[0]

    def restore_average(self, like: Any, count: int) -> Any:
        """The mean, in float32, of the newest `count` checkpoints (Vaswani et al. 2017, section 6.1)."""
        steps = sorted(self._manager.all_steps())[-count:]
        if len(steps) < count:
            raise UserError(
                f"{self.folder.parent} has {len(steps)} checkpoints to average, not {count}; "
                f"train with --checkpoint.keep={count}"
            )
        total = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), self._params(steps[0], like))
        for step in steps[1:]:
            total = jax.tree.map(jnp.add, total, self._params(step, like))
        return jax.tree.map(lambda leaf, target: (leaf / count).astype(target.dtype), total, like)

    def close(self):
        """Waits until everything is on disk."""
        with disk_errors(self.folder):
            self._manager.wait_until_finished()
        self._manager.close()

    def _params(self, step: int, like: Any) -> Any:
        self._check_shapes(step, like)
        saved = self._manager.restore(step, args=ocp.args.Composite(params=_restore_args(_by_name(like))))
        return _unflatten(saved["params"], like)

    def _check_shapes(self, step: int, like: Any):
        """Raises UserError if shapes differ: Orbax would say so in hundreds of lines."""
        metadata = self._manager.item_metadata(step)["params"]
        if metadata is None:
            raise ValueError("the metadata of its arrays is missing")
        for name, leaf in _by_name(like).items():
            shape = getattr(metadata.tree.get(name), "shape", "absent")
            if shape != leaf.shape:
                raise UserError(
                    f"{self.folder.parent} is of another architecture: {name} is {shape} there and {leaf.shape} here"
                )

    def _best_step(self) -> int | None:
        """The step with the best metric, as the newest checkpoint notes it; None if it is gone."""
        items = ocp.args.Composite(note=ocp.args.JsonRestore())
        step = self._manager.restore(self._manager.latest_step(), args=items)["note"]["best"]["step"]
        return step if step in self._manager.all_steps() else None

    def _newest(
        self, read: Callable[[int], Result], log: Callable[[str], None], first: int | None = None
    ) -> tuple[Result, int]:
        """What `read` returns for the newest readable checkpoint, and its step. The step `first` is tried first.

        Logs unfinished and damaged checkpoints, and deletes damaged ones: the run must be able to save their steps
        again. Raises UserError if none is left.
        """
        for name in self._unfinished:
            log(f"checkpoint {name.split('.')[0]} was never finished; passing over it")
        damaged: list[int] = []
        for step in sorted(self._manager.all_steps(), key=lambda step: (step == first, step), reverse=True):
            try:
                result = read(step)
            except Exception as error:
                # Orbax raises a bare Exception for a truncated array.
                if not isinstance(error, _DAMAGED) and type(error) is not Exception:
                    raise
                log(f"checkpoint {step} cannot be read ({type(error).__name__}); falling back to the one before")
                damaged.append(step)
                continue
            if not self._read_only:
                for damaged_step in damaged:
                    self._manager.delete(damaged_step)
            return result, step
        raise UserError(f"{self.folder} holds no whole checkpoint; start a new run")


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turns the errors of a full disk, OSError or messages of other errors, into one sentence."""
    try:
        yield
    except Exception as error:
        full = getattr(error, "errno", None) == errno.ENOSPC or any(sign in str(error) for sign in _DISK_FULL)
        if not full:
            raise
        raise UserError(
            f"the disk is full: {folder} keeps its last whole checkpoint; free some space and add --resume"
        ) from error


def _by_name(tree: Any) -> dict[str, Any]:
    """Every array by its name, such as encoder.embed.tokens: fields added later leave old checkpoints readable."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _unflatten(arrays: Mapping[str, Any], like: Any) -> Any:
    """The inverse of `_by_name`: a tree with the structure of `like`."""
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in _by_name(like)])


def _training_only(state: "State") -> dict[str, Any]:
    """What only training needs: optimizer state and step; with a moving average, the trained parameters too."""
    fields = {"opt": state.opt, "step": state.step}
    return fields if state.ema is None else fields | {"params": state.params}


def _restore_args(like: Any):
    return ocp.args.StandardRestore(
        jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), like)
    )


@functools.cache
def _silence_orbax():
    """Orbax raises what matters, and logs a traceback for every array that it could not read or write."""
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    original = sys.unraisablehook

    def hook(unraisable):
        if str(unraisable.exc_value) != "Event loop is closed":
            original(unraisable)

    sys.unraisablehook = hook
