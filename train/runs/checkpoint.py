"""Checkpoints of the training state, by Orbax: written in the background, the latest few and the best one kept."""

import errno
import functools
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from train import UserError
from train.runs.folder import CHECKPOINTS
from train.training.step import State
from train.training.stochastic_rounding import widen

# What Orbax and TensorStore raise for a checkpoint whose files are missing, cut short or not what they should be.
_DAMAGED = (OSError, ValueError, KeyError, TypeError)


class Checkpoints:
    """The checkpoints of one run folder, by step."""

    def __init__(self, folder: Path, keep: int = 1, read_only: bool = False, goal: Callable = min):
        """`goal` is min or max: whether the best checkpoint is the one whose metric is the least or the most."""
        best = BestN(
            get_metric_fn=lambda found: found["metric"],
            reverse=goal is min,
            n=1,
            keep_checkpoints_without_metrics=False,
        )
        self.folder = folder.absolute()
        self._unfinished = sorted(path.name for path in self.folder.glob("*orbax-checkpoint-tmp*"))
        self._read_only = read_only
        _quiet_orbax()
        options = ocp.CheckpointManagerOptions(
            preservation_policy=AnyPreservationPolicy([LatestN(keep), best]),
            create=not read_only,
            cleanup_tmp_directories=not read_only,
        )
        standard = ocp.StandardCheckpointHandler
        handlers = {"params": standard(), "opt": standard(), "note": ocp.JsonCheckpointHandler()}
        self._manager = ocp.CheckpointManager(self.folder, options=options, item_handlers=handlers)

    def save(self, step: int, state: State, note: Mapping[str, Any], metric: float | None):
        """Starts to write the state, and a note of plain values beside it; returns before it is on disk."""
        arguments = ocp.args.Composite(
            params=ocp.args.StandardSave(_named(state.eval_params)),
            opt=ocp.args.StandardSave(_rest(state)),
            note=ocp.args.JsonSave(dict(note)),
        )
        with disk_errors(self.folder):
            self._manager.save(step, args=arguments, metrics=None if metric is None else {"metric": metric})

    def restore(self, like: State, say) -> tuple[State, dict[str, Any], int]:
        """The newest whole checkpoint, on the shapes, dtypes and shardings of `like`: state, note, step."""
        items = ocp.args.Composite(
            params=_restore(_named(like.eval_params)), opt=_restore(_rest(like)), note=ocp.args.JsonRestore()
        )
        found, step = self._newest(lambda step: self._manager.restore(step, args=items), say)
        params = _unnamed(found["params"], like.eval_params)
        return State(**{"params" if like.ema is None else "ema": params}, **found["opt"]), found["note"], step

    def restore_params(self, like: Any, say, best: bool) -> Any:
        """The parameters alone of the newest whole checkpoint, or of the best one. Raises UserError where they are of other shapes."""

        return self._newest(lambda step: self._params(step, like), say, self.best_step() if best else None)[0]

    def restore_average(self, like: Any, number: int) -> Any:
        """The mean of the parameters of the newest checkpoints (Vaswani et al. 2017, section 6.1).

        Raises UserError where there are fewer.
        """
        steps = sorted(self._manager.all_steps())[-number:]
        if len(steps) < number:
            folder = self.folder.parent
            raise UserError(
                f"{folder} has {len(steps)} checkpoints to average, not {number}; train with --checkpoint.keep={number}"
            )
        total = widen(self._params(steps[0], like))
        for step in steps[1:]:
            total = jax.tree.map(jnp.add, total, self._params(step, like))
        return jax.tree.map(lambda leaf, wanted: (leaf / number).astype(wanted.dtype), total, like)

    def _params(self, step: int, like: Any) -> Any:
        self._check_shapes(step, like)
        found = self._manager.restore(step, args=ocp.args.Composite(params=_restore(_named(like))))
        return _unnamed(found["params"], like)

    def best_step(self) -> int | None:
        """The step with the best metric, by the note of the newest checkpoint."""
        note = self._manager.restore(self._manager.latest_step(), args=ocp.args.Composite(note=ocp.args.JsonRestore()))[
            "note"
        ]
        step = note["best"]["step"]
        return step if step in self._manager.all_steps() else None

    def _newest(self, read: Callable[[int], Any], say, first: int | None = None) -> tuple[Any, int]:
        """What `read` makes of the newest checkpoint that can be read, or of the `first` to try, and its step.

        Says which checkpoints it passed over because they are unfinished or damaged. Raises UserError where none is left.
        """
        for name in self._unfinished:
            say(f"checkpoint {name.split('.')[0]} was never finished; passing over it")
        damaged: list[int] = []
        for step in sorted(self._manager.all_steps(), key=lambda step: (step == first, step), reverse=True):
            try:
                found = read(step)
            except Exception as error:
                if (
                    not isinstance(error, _DAMAGED) and type(error) is not Exception
                ):  # Orbax raises bare ones for an array cut short
                    raise
                say(f"checkpoint {step} cannot be read ({type(error).__name__}); falling back to the one before")
                damaged.append(step)
                continue
            for number in () if self._read_only else damaged:
                self._manager.delete(number)  # or the run could not save that step again
            return found, step
        raise UserError(f"{self.folder} holds no whole checkpoint; start a new run")

    def _check_shapes(self, step: int, like: Any):
        """Orbax itself would answer a mismatch with hundreds of lines."""
        item = self._manager.item_metadata(step)["params"]
        if item is None:
            raise ValueError("the metadata of its arrays is missing")
        for name, leaf in _named(like).items():
            there, folder = getattr(item.tree.get(name), "shape", "absent"), self.folder.parent
            if there != leaf.shape:
                raise UserError(f"{folder} is of another architecture: {name} is {there} there and {leaf.shape} here")

    @property
    def latest(self) -> int | None:
        """Step of the newest checkpoint."""
        return self._manager.latest_step()

    def close(self):
        """Waits until everything is on disk."""
        with disk_errors(self.folder):
            self._manager.wait_until_finished()
        self._manager.close()


def load_params(folder: str | Path, like: Any, say, best: bool = False, average: int = 1) -> Any:
    """The parameters of a run, its last ones, its best, or the mean of the last few, on the shapes and shardings of `like`.

    Raises UserError where shapes differ, or checkpoints are missing.
    """
    store = Checkpoints(Path(folder) / CHECKPOINTS, read_only=True)
    if store.latest is None:
        raise UserError(f"{folder} holds no checkpoint to take weights from")
    return store.restore_average(like, average) if average > 1 else store.restore_params(like, say, best)


def _named(tree: Any) -> dict[str, Any]:
    """Every array by its name, such as encoder.embed.tokens: a part that a later version adds does not make old checkpoints unreadable."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _unnamed(named: Mapping[str, Any], like: Any) -> Any:
    """The inverse of `_named`, for a tree of the structure of `like`."""
    return jax.tree.unflatten(jax.tree.structure(like), [named[name] for name in _named(like)])


def _rest(state: State) -> dict[str, Any]:
    """What a checkpoint holds beside the parameters that are used later: of a run with an average, those that are trained too."""
    rest = {"opt": state.opt, "step": state.step}
    return rest if state.ema is None else rest | {"params": state.params}


def _restore(like: Any):
    return ocp.args.StandardRestore(
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), like)
    )


@functools.cache
def _quiet_orbax():
    """Orbax raises what matters; besides, it writes a traceback for every array of a checkpoint that it could not write or read."""
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    before = sys.unraisablehook

    def hook(unraisable):
        if str(unraisable.exc_value) != "Event loop is closed":
            before(unraisable)

    sys.unraisablehook = hook


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """A full disk, which arrives as an OSError or inside the message of another error, in one sentence."""
    try:
        yield
    except Exception as error:
        full = getattr(error, "errno", None) == errno.ENOSPC or any(
            sign in str(error)
            for sign in ("No space left on device", "Disk quota exceeded", "RESOURCE_EXHAUSTED: ENOSPC")
        )
        if not full:
            raise
        raise UserError(
            f"the disk is full: {folder} keeps its last whole checkpoint; free some space and add --resume"
        ) from error
