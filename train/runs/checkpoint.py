"""Checkpoints of the training state, by Orbax: written in the background; the newest few and the best one are kept.

`saved` reads them.
"""

import errno
import functools
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import final

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from tfm.params import PyTree
from train import UserError
from train.devices import distributed
from train.files import buckets
from train.files.buckets import Folder
from train.runs import manifest
from train.runs.state import State

# In bytes. To cut a part out of an array is a program of its own for each shape and device: the first checkpoint of a
# small model waited for hundreds of them.
SMALLEST_PART = 2**20

# What Orbax and TensorStore say of an error of the operating system, and of a full disk where they lose its number.
_OS_ERROR = re.compile(r"os_error_code='(\d+)'")
_DISK_FULL = ("No space left on device", "Disk quota exceeded", "RESOURCE_EXHAUSTED: ENOSPC")


@final
class Checkpoints:
    """The checkpoints that a run makes in a folder, by step."""

    def __init__(self, folder: Folder, keep: int = 1, goal: Callable = min):
        """`goal` is min or max: whether the best checkpoint has the lowest or the highest metric."""
        best = BestN(
            get_metric_fn=lambda metrics: metrics["metric"],
            reverse=goal is min,
            n=1,
            keep_checkpoints_without_metrics=False,
        )
        self.folder = buckets.absolute(folder)
        self._saving = 0
        silence_orbax()
        if not isinstance(folder, Path) and distributed.is_main():
            buckets.remove_unfinished(folder)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=AnyPreservationPolicy([LatestN(keep), best]),
            best_fn=best.get_metric_fn,  # else Orbax keeps no metrics, and forgets which is the best when a run resumes
            cleanup_tmp_directories=isinstance(folder, Path),  # in a bucket it removes all that is no checkpoint
            async_options=ocp.options.AsyncOptions(post_finalization_callback=self._write_manifest),
        )
        handlers = {"params": _array_handler(), "opt": _array_handler(), "note": ocp.JsonCheckpointHandler()}
        self._manager = ocp.CheckpointManager(self.folder, options=options, item_handlers=handlers)

    @property
    def latest(self) -> int | None:
        """Step of the newest checkpoint."""
        return self._manager.latest_step()

    def steps(self, before: int | None = None) -> list[int]:
        """Steps of the checkpoints, less than `before`."""
        return [step for step in self._manager.all_steps() if before is None or step < before]

    def wait(self):
        """Waits until everything is on disk."""
        with disk_errors(self.folder):
            self._manager.wait_until_finished()

    def save(self, step: int, state: State, note: Mapping[str, object], metric: float | None):
        """Starts to write the state and a note of plain values; returns before they are on disk."""
        items = ocp.args.Composite(
            params=ocp.args.PyTreeSave(by_name(state.eval_params)),
            opt=ocp.args.PyTreeSave(training_only(state)),
            note=ocp.args.JsonSave(dict(note)),
        )
        with disk_errors(self.folder):
            self._manager.wait_until_finished()
            self._saving = step
            self._manager.save(step, args=items, metrics=None if metric is None else {"metric": metric})

    def close(self):
        """Waits until everything is on disk."""
        self.wait()
        self._manager.close()

    def _write_manifest(self):
        """Called by Orbax, in one process, when all files of a checkpoint are written, and it does not count yet."""
        unfinished: Folder = self.folder / str(self._saving)
        if not buckets.is_bucket(self.folder):
            (unfinished,) = self.folder.glob(f"{self._saving}.orbax-checkpoint-tmp*")
        manifest.write(unfinished, self._saving)


def _array_handler() -> ocp.PyTreeCheckpointHandler:
    """Writes arrays; those that every device holds in parts of at least `SMALLEST_PART`, one part a device."""
    arrays = ocp.type_handlers.ArrayHandler(min_slice_bytes_for_replica_parallel=SMALLEST_PART)
    registry = ocp.type_handlers.create_type_handler_registry((jax.Array, arrays))
    return ocp.PyTreeCheckpointHandler(type_handler_registry=registry)


@contextmanager
def disk_errors(folder: Folder) -> Iterator[None]:
    """Turns errors of the operating system, which Orbax and TensorStore hide in messages of others, into OSError.

    A full disk, and errors of a bucket, are a UserError that says what is left.
    """
    try:
        yield
    except Exception as error:
        if buckets.is_bucket(folder):
            buckets.explain(error, folder, "; its last whole checkpoint is kept: add --resume then")
        code = _os_error(error)
        if code in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"the disk is full: {folder} keeps its last whole checkpoint; free some space and add --resume"
            ) from error
        if code is None or isinstance(error, OSError):
            raise
        raise OSError(code, os.strerror(code), str(folder)) from error


def _os_error(error: Exception) -> int | None:
    """The number of the error of the operating system behind an exception, if there is one."""
    if isinstance(error, OSError):
        return error.errno
    if any(sign in str(error) for sign in _DISK_FULL):
        return errno.ENOSPC
    match = _OS_ERROR.search(str(error))
    return int(match[1]) if match else None


def by_name(tree: PyTree) -> dict[str, PyTree]:
    """Every array by its name, such as encoder.embed.tokens: fields added later leave old checkpoints readable."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def training_only(state: State) -> dict[str, PyTree]:
    """What only training needs: optimizer state and step; the trained parameters beside a moving average, the
    memory and the scale of the loss, where there are any."""
    fields = {"opt": state.opt, "step": state.step}
    params = None if state.ema is None else state.params
    optional = {"params": params, "memory": state.memory, "scale": state.scale}
    return fields | {name: value for name, value in optional.items() if value is not None}


@functools.cache
def silence_orbax():
    """Orbax raises what matters, and logs a traceback for every array that it could not read or write."""
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    original = sys.unraisablehook

    def hook(unraisable):
        if str(unraisable.exc_value) != "Event loop is closed":
            original(unraisable)

    sys.unraisablehook = hook
