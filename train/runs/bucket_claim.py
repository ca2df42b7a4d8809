"""The claim on a folder of a bucket: one run at a time saves its checkpoints there.

A bucket has no locks. The owner writes an object on the condition that there is none, and again every few seconds, on
the condition that it is still its own. Who finds an owner that is gone, or that has not written for a minute, takes its
place, on the same condition. No clocks are compared.
"""

import contextlib
import json
import os
import platform
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, final

from tfm.options.json_text import Json
from train import UserError
from train.devices import distributed
from train.files import buckets, liveness
from train.runs.claim import OWNER, machine

if TYPE_CHECKING:
    import tensorstore

# Seconds between two touches, between two looks, and without a touch until an owner counts as gone.
_TOUCH, _LOOK, _EXPIRY = 10.0, 2.0, 60.0

# An absent bucket, or one without rights, is named within seconds.
_CONTEXT = {"gcs_request_retries": {"max_retries": 3, "initial_delay": "500ms", "max_delay": "2s"}}


@contextlib.contextmanager
def claimed_bucket(url: str, resume: bool) -> Iterator[None]:
    """Nobody else can claim the folder that `--checkpoint.folder` names inside; without one there is nothing to claim.

    Of several processes of a job, process 0 claims. Raises UserError, in all processes, if the folder has an owner,
    cannot be written, or holds checkpoints that this run does not go on from.
    """
    with contextlib.ExitStack() as release:
        if url:
            distributed.broadcast_from_main(lambda: _claim(url, resume, release))
        yield


def _claim(url: str, resume: bool, release: contextlib.ExitStack) -> str:
    """Claims a folder; `release` gets what undoes that. Returns nothing to say."""
    import tensorstore

    folder = buckets.open_folder(url)
    bucket, _, path = str(folder).removeprefix("gs://").partition("/")
    spec = {"driver": "gcs", "bucket": bucket, "path": f"{path}/"}
    with buckets.sentences(folder):
        store = tensorstore.KvStore.open(spec, context=tensorstore.Context(_CONTEXT)).result()
        lease = Lease(store, str(folder))
        lease.take()
        release.callback(lease.drop)
        release.enter_context(lease.kept())
        holds_some = not resume and buckets.begun_steps(folder)
    if holds_some:
        raise UserError(
            f"--checkpoint.folder={url} already holds checkpoints; choose another folder, or add --resume to continue "
            "their run"
        )
    return ""


@final
class Lease:
    """An object in a store of keys and values that names the owner of a folder."""

    def __init__(self, store: "tensorstore.KvStore", folder: str):
        self._store = store
        self._folder = folder
        self._sign = {"process": os.getpid(), "host": platform.node(), "machine": _machine(), "token": uuid.uuid4().hex}
        self._touches = 0
        self._generation = b""

    def take(self):
        """Becomes the owner. Raises UserError where somebody else is."""
        before = self._read()
        if before.value and not _is_gone(owner := _parsed(before.value)):
            before = self._watch(before, owner)
        if not self._write(before.stamp.generation):
            raise self._owned_by(_parsed(self._read().value))

    def touch(self) -> bool:
        """Says that the owner lives; False if it is the owner no more."""
        if self._write(self._generation):
            return True
        now = self._read()  # the answer to an earlier write may have been lost
        if now.value and _parsed(now.value).get("token") != self._sign["token"]:
            return False
        return self._write(now.stamp.generation)

    def drop(self):
        """Gives the folder free, if that can be said."""
        with contextlib.suppress(Exception):
            self._store.write(OWNER, None, if_equal=self._generation).result()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Touches the object now and then, in a thread, which ends the process if another one has become the owner."""
        stopped = threading.Event()

        def keep():
            while not stopped.wait(_TOUCH):
                with contextlib.suppress(Exception):  # of a network, which may come back
                    if not self.touch():
                        print(f"error: {self._owned_by(_parsed(self._read().value))}", file=sys.stderr, flush=True)
                        os._exit(2)

        thread = threading.Thread(target=keep, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def _read(self) -> "tensorstore.KvStore.ReadResult":
        return self._store.read(OWNER).result()

    def _write(self, generation: bytes) -> bool:
        """Signs, if the object is still of that generation."""
        self._touches += 1
        sign = json.dumps({**self._sign, "touches": self._touches}).encode()
        stamp = self._store.write(OWNER, sign, if_equal=generation).result()
        if stamp.generation:
            self._generation = stamp.generation
        return bool(stamp.generation)

    def _watch(self, before: "tensorstore.KvStore.ReadResult", owner: Mapping[str, Json]):
        """What is there when an owner has not touched the object for a minute. Raises UserError if it does."""
        name = f"process {owner.get('process')} on {owner.get('host')}"
        print(f"{self._folder} belongs to {name}; looking for {_EXPIRY:.0f} s whether it lives", file=sys.stderr)
        end = time.monotonic() + _EXPIRY
        while time.monotonic() < end:
            time.sleep(_LOOK)
            now = self._read()
            if now.stamp.generation != before.stamp.generation:
                if now.value:
                    raise self._owned_by(_parsed(now.value))
                return now
        return before

    def _owned_by(self, owner: Mapping[str, Json]) -> UserError:
        return UserError(
            f"{self._folder} belongs to process {owner.get('process')} on {owner.get('host')}, which saves checkpoints "
            "in it; wait until it ends, or choose another folder with --checkpoint.folder"
        )


def _machine() -> str:
    """A name of this machine since it was started, and of the container in it: those have their own numbers of
    processes."""
    with contextlib.suppress(OSError):
        return f"{machine()} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _is_gone(owner: Mapping[str, Json]) -> bool:
    """Whether an owner surely is no more: its machine is this one, and there is no such process."""
    process = owner.get("process")
    if not isinstance(process, int) or not _machine() or owner.get("machine") != _machine():
        return False
    return process == os.getpid() or liveness.is_gone(process)


def _parsed(value: bytes) -> dict[str, Json]:
    """Who has signed; nobody if the object is damaged."""
    try:
        owner = json.loads(value)
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}
