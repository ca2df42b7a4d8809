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
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from train import UserError
from train.run import CHECKPOINTS
from train.step import State

# What Orbax and TensorStore raise for a checkpoint whose files are missing, cut short or not what they should be.
_DAMAGED = (OSError, ValueError, KeyError, TypeError)


class Checkpoints:
    """The checkpoints of one run folder, by step."""

    def __init__(self, folder: Path, keep: int = 1, read_only: bool = False):
        best = BestN(get_metric_fn=lambda metrics: metrics["eval_loss"], reverse=True, n=1, keep_checkpoints_without_metrics=False)
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

    def save(self, step: int, state: State, note: Mapping[str, Any], eval_loss: float | None):
        """Starts to write the state, and a note of plain values beside it; returns before it is on disk."""
        arguments = ocp.args.Composite(
            params=ocp.args.StandardSave(state.params),
            opt=ocp.args.StandardSave({"opt": state.opt, "step": state.step}),
            note=ocp.args.JsonSave(dict(note)),
        )
        with disk_errors(self.folder):
            self._manager.save(step, args=arguments, metrics=None if eval_loss is None else {"eval_loss": eval_loss})

    def restore(self, like: State, say) -> tuple[State, dict[str, Any], int]:
        """The newest whole checkpoint, on the shapes, dtypes and shardings of `like`: state, note, step."""
        rest = {"opt": like.opt, "step": like.step}
        items = ocp.args.Composite(params=_restore(like.params), opt=_restore(rest), note=ocp.args.JsonRestore())
        found, step = self._newest(lambda step: self._manager.restore(step, args=items), say)
        return State(params=found["params"], **found["opt"]), found["note"], step

    def restore_params(self, like: Any, say) -> Any:
        """The parameters alone of the newest whole checkpoint. Raises UserError where its architecture is another one."""

        def read(step: int):
            self._check_shapes(step, like)
            return self._manager.restore(step, args=ocp.args.Composite(params=_restore(like)))["params"]

        return self._newest(read, say)[0]

    def _newest(self, read: Callable[[int], Any], say) -> tuple[Any, int]:
        """What `read` makes of the newest checkpoint that can be read, and its step.

        Says which checkpoints it passed over because they are unfinished or damaged. Raises UserError where none is left.
        """
        for name in self._unfinished:
            say(f"checkpoint {name.split('.')[0]} was never finished; passing over it")
        damaged: list[int] = []
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                found = read(step)
            except Exception as error:
                if not isinstance(error, _DAMAGED) and type(error) is not Exception:  # Orbax raises bare ones for an array cut short
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
        found = {".".join(str(key.key) for key in path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(item.tree)}
        for path, leaf in jax.tree_util.tree_leaves_with_path(like):
            name = ".".join(key.name for key in path)
            if found.get(name) != leaf.shape:
                there, folder = found.get(name, "absent"), self.folder.parent
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


def load_params(folder: str | Path, like: Any, say) -> Any:
    """The parameters of a run, on the shapes and shardings of `like`. Raises UserError where its architecture is another one."""
    store = Checkpoints(Path(folder) / CHECKPOINTS, read_only=True)
    if store.latest is None:
        raise UserError(f"{folder} holds no checkpoint to take weights from")
    return store.restore_params(like, say)


def _restore(like: Any):
    return ocp.args.StandardRestore(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), like))


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
            sign in str(error) for sign in ("No space left on device", "Disk quota exceeded", "RESOURCE_EXHAUSTED: ENOSPC")
        )
        if not full:
            raise
        raise UserError(f"the disk is full: {folder} keeps its last whole checkpoint; free some space and add --resume") from error
