"""The claim on a run folder: one job at a time trains in it.

Its owner locks a file in the folder. The system unlocks it when the process ends, however it ends. A network file
system may keep locks to one machine, or have none: the owner also touches the file, and counts as dead after a minute
without.
"""

import contextlib
import errno
import fcntl
import itertools
import json
import os
import platform
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tfm.options.json_text import Json
from train import UserError
from train.devices import distributed
from train.runs.run_folder import ROOT
from train.settings.schema import Run

OWNER = ".owner"

# Seconds between two touches, and without one until an owner counts as dead.
_TOUCH, _EXPIRY = 10, 60

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class _OwnedError(UserError):
    """Somebody else trains in the folder."""


@contextlib.contextmanager
def claimed_folder(run: Run) -> Iterator[Path]:
    """The folder that `--out` names, or the next free runs/TASK-PRESET-N; nobody else can claim it inside.

    Of several processes of a job, process 0 claims. What is made here and still empty at the end is removed. Raises
    UserError, in all processes, if the folder holds another run, has an owner, cannot be written, or holds a run that
    only some of them see.
    """
    if not distributed.all_equal(str(run.resume)):
        raise UserError(f"--out={run.out} holds a run that not all processes see; give a folder that all of them share")
    with contextlib.ExitStack() as release:

        def claim() -> str:
            if run.out:
                return str(_claim(Path(run.out), run.resume, release))
            return str(_claim_next(f"{run.task.name}-{run.preset}", release))

        yield Path(distributed.broadcast_from_main(claim))


def _claim_next(name: str, release: contextlib.ExitStack) -> Path:
    """The first folder of the name in runs/ that is free; one that a killed process left empty is free again."""
    for index in itertools.count(1):
        folder = ROOT / f"{name}-{index}"
        if not folder.exists() or _holds_only_owner(folder):
            with contextlib.suppress(_OwnedError):
                return _claim(folder, False, release)
    raise AssertionError


def _claim(folder: Path, resume: bool, release: contextlib.ExitStack) -> Path:
    """Makes and claims a folder; `release` gets what undoes that. Raises UserError where it cannot."""
    with contextlib.ExitStack() as undo:
        try:
            if folder.exists() and not folder.is_dir():
                raise UserError(f"--out={folder} is a file; choose another folder")
            _own(folder, undo)
            is_new = _holds_only_owner(folder)
        except OSError as error:
            verb = "written" if resume else "made"
            raise UserError(f"--out={folder} cannot be {verb}: {error.strerror}; choose another folder") from error
        if not resume and not is_new:
            raise UserError(
                f"--out={folder} already holds something; choose another folder, or add --resume to continue its run"
            )
        release.push(undo.pop_all())
    return folder


def _own(folder: Path, undo: contextlib.ExitStack):
    """Makes a folder, and locks and signs the file of its owner; `undo` gets what undoes that."""
    path = folder / OWNER
    created = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    for parent in reversed(created):
        undo.callback(_remove_empty, parent)
    for _ in range(20):
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as closing, contextlib.suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            closing.callback(os.close, handle)
            locked = _lock(handle)
            owner = _read(path)
            if not os.path.samestat(os.fstat(handle), path.stat()):
                continue  # its last owner has removed it meanwhile
            if locked is False and not owner:
                time.sleep(0.05)  # another process has locked it, and signs it now
                continue
            if locked is False or (owner and _may_live_elsewhere(owner, locked, path)):
                raise _OwnedError(
                    f"{folder} belongs to process {owner.get('process')} on {owner.get('host')}, which trains in it; "
                    "wait until it ends, or choose another folder with --out"
                )
            sign = {"process": os.getpid(), "host": platform.node(), "machine": machine()}
            os.truncate(handle, 0)
            os.pwrite(handle, json.dumps(sign).encode(), 0)
            undo.push(closing.pop_all())
            undo.callback(_remove_file, path)
            undo.enter_context(_touching(handle))
            return
    raise _OwnedError(f"{folder} belongs to another process; wait until it ends, or choose another folder with --out")


def _lock(handle: int) -> bool | None:
    """Whether this process could lock a file; None where there are no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return True


def _may_live_elsewhere(owner: Mapping[str, object], locked: bool | None, path: Path) -> bool:
    """Whether an owner may live although its file could be locked: the lock may not reach its machine."""
    reaches = locked and owner.get("machine") == machine()
    return not reaches and time.time() - path.stat().st_mtime < _EXPIRY


def machine() -> str:
    """A name of this machine since it was started, which no other has."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


def _read(path: Path) -> dict[str, Json]:
    """Who has signed; nobody if the file is empty, or damaged."""
    try:
        owner = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


@contextlib.contextmanager
def _touching(handle: int) -> Iterator[None]:
    """Touches a file now and then, in a thread."""
    stopped = threading.Event()

    def touch():
        while not stopped.wait(_TOUCH):
            with contextlib.suppress(OSError):
                os.utime(handle)

    thread = threading.Thread(target=touch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _holds_only_owner(folder: Path) -> bool:
    """Whether a folder is empty but for the file of an owner."""
    return folder.is_dir() and os.listdir(folder) == [OWNER]


def _remove_file(path: Path):
    """Removes a file, if it can be."""
    with contextlib.suppress(OSError):
        path.unlink()


def _remove_empty(folder: Path):
    """Removes a folder, unless something is in it."""
    with contextlib.suppress(OSError):
        folder.rmdir()
