"""Processes that train together, and one of which is gone: the others say which, and end.

JAX notices that after 100 seconds, in a stack trace, and never where a process hangs. Here each process writes a beat
into JAX's coordination service every few seconds, and reads those of the others. Whose beat stays as it is for
`--distributed.patience` seconds is gone. Where all beat, and none takes a step for `--distributed.stall` seconds, the
slowest is named. The service is a part of process 0: where that is killed, JAX aborts the others at once, and a handler
of this signal says why. The exit code, EX_TEMPFAIL of sysexits.h, says to start all again, with `--resume`.
"""

import contextlib
import ctypes
import os
import platform
import re
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from train.settings.distributed import Distributed

START_AGAIN = 75

# Beats in the seconds of patience; and the most processes that all read the beats of all: of more, only process 0 does.
_BEATS, _READERS = 10, 64

# The share of the seconds of patience by which processes may differ in what they miss: at least a few beats.
_SOON = 0.7

# How XLA's errors of processes that compute together begin, where they are no JaxRuntimeError.
_LOST = re.compile("UNKNOWN|UNAVAILABLE|ABORTED|CANCELLED|INTERNAL|DEADLINE_EXCEEDED")

_FOLDER = "tfm/beat/"


class Beat(NamedTuple):
    """What a process says of itself: how often it said so, -1 at its end; batches and steps done, its last step, and
    where it runs."""

    beats: int = 0
    done: int = 0
    step: int = 0
    host: str = "?"
    pid: int = 0

    def to_text(self) -> str:
        """For the coordination service."""
        return " ".join(map(str, self))

    @classmethod
    def of_text(cls, text: str) -> "Beat":
        """The inverse of `to_text`."""
        beats, done, step, host, pid = text.split(" ")
        return cls(int(beats), int(done), int(step), host, int(pid))


class Peers:
    """What a process has heard of all, itself among them, and when (in seconds of one clock)."""

    def __init__(self, process: int, processes: int, options: Distributed, now: float):
        self.process, self.patience, self.stall = process, options.patience, options.stall
        self._beats = {peer: (Beat(), now) for peer in range(processes)}
        self._heard = self._moved = now

    def hear(self, beats: Mapping[int, Beat], now: float):
        """An exchange with process 0, which holds the beats of all."""
        self._heard = now
        for peer, beat in beats.items():
            before = self._beats[peer][0]
            if beat != before:
                self._beats[peer] = beat, now
            if beat.done != before.done:
                self._moved = now

    def after_coordinator(self, now: float) -> str:
        """The sentence where the coordination service does not answer any more. Process 0 may have ended because it
        misses a process that this one would soon miss too."""
        soon = now + self.patience * _SOON
        return self.verdict(soon) or f"{self._name(0)} ended, and the coordination service with it"

    def verdict(self, now: float) -> str:
        """The sentence about what is wrong; "" if nothing is."""
        present = {peer: beat for peer, (beat, _) in self._beats.items() if beat.beats >= 0 and peer != self.process}
        silent = {peer: now - self._beats[peer][1] for peer in present}
        if self.process and 0 in present and now - self._heard > self.patience:
            silent = {0: now - self._heard}  # nobody else can be heard without it
        if gone := [peer for peer, seconds in silent.items() if seconds > self.patience]:
            names = ", ".join(map(self._name, gone[:8])) + (f" and {len(gone) - 8} more" if len(gone) > 8 else "")
            return f"{names} said nothing for {max(silent[peer] for peer in gone):.0f} s"
        if now - self._moved > self.stall and any(beat.done for beat in present.values()):
            slowest = min(present, key=lambda peer: present[peer].done)
            return f"no process took a step for {now - self._moved:.0f} s; behind is {self._name(slowest)}"
        return ""

    def _name(self, peer: int) -> str:
        beat, _ = self._beats[peer]
        return f"process {peer} (process id {beat.pid} on {beat.host}, after step {beat.step})"


class Watchdog:
    """Beats, and looks after the others, in threads of its own.

    client: JAX's coordination service. end: called with an exit code after the sentence is written.
    """

    def __init__(
        self, client: Any, process: int, processes: int, options: Distributed, end: Callable[[int], object] = os._exit
    ):
        self._client, self._end = client, end
        self._reads_all = process == 0 or processes <= _READERS
        self._peers = Peers(process, processes, options, time.monotonic())
        self._own = Beat(host=platform.node() or "?", pid=os.getpid())
        self._closed = threading.Event()
        self._every = options.patience / _BEATS
        for target in (self._exchange, self._look):  # an exchange takes as long as process 0 does not answer
            threading.Thread(target=target, daemon=True).start()

    def moved(self, step: int | None = None):
        """A batch was computed, or that step was taken."""
        self._own = self._own._replace(done=self._own.done + 1, step=self._own.step if step is None else step)

    def close(self):
        """The end of a run, after which nobody misses this process."""
        self._closed.set()
        self._own = self._own._replace(beats=-1)
        with contextlib.suppress(Exception):
            self._write()

    def lost(self, error: Exception):
        """Waits until a beat is missing: an error of processes that compute together does not say who is gone."""
        self._closed.wait(2 * self._peers.patience)
        traceback.print_exception(error)
        self._say(f"the processes lost each other, and all still live: {str(error).partition(chr(10))[0][:200]}")

    def aborted(self, coordinator: str):
        """JAX is about to abort: if the service at `coordinator` (host:port) is gone, says so and ends."""
        if not _answers(coordinator):
            self._say(self._peers.after_coordinator(time.monotonic()))

    def _exchange(self):
        while not self._closed.is_set():
            self._own = self._own._replace(beats=self._own.beats + 1)
            with contextlib.suppress(Exception):  # what it could not hear is missing, and that is noticed
                self._write()
                self._peers.hear(self._read(), time.monotonic())
            self._closed.wait(self._every)

    def _write(self):
        self._client.key_value_set(f"{_FOLDER}{self._peers.process}", self._own.to_text(), allow_overwrite=True)

    def _read(self) -> dict[int, Beat]:
        if not self._reads_all:
            return {self._peers.process: self._own}
        texts = self._client.key_value_dir_get(_FOLDER)
        return {int(key.rpartition("/")[2]): Beat.of_text(text) for key, text in texts}

    def _look(self):
        while not self._closed.wait(self._every):
            if sentence := self._peers.verdict(time.monotonic()):
                self._say(sentence)
                return

    def _say(self, sentence: str):
        """Ends the process at once: JAX would wait for the others."""
        peers, step = self._peers, self._own.step
        line = f"error: {sentence}; this is process {peers.process} after step {step}; start all again with --resume\n"
        os.write(2, line.encode())
        self._end(START_AGAIN)


def _answers(coordinator: str) -> bool:
    """Whether somebody listens at host:port."""
    host, _, port = coordinator.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout=5):
        return True
    return False


@contextlib.contextmanager
def _handling_aborts(handle: Callable[[], None]) -> Iterator[None]:
    """Inside, calls `handle` in a thread that aborts, and lets it go on. A handler of Python's would never run: it
    waits for the main thread, and an abort for nobody."""
    if os.name != "posix":
        yield
        return
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda signum: handle())
    libc = ctypes.CDLL(None)
    libc.signal(signal.SIGABRT, handler)
    try:
        yield
    finally:
        libc.signal(signal.SIGABRT, None)  # the default


_running: list[Watchdog] = []


def moved(step: int | None = None):
    """A batch was computed, or that step was taken."""
    for watchdog in _running:
        watchdog.moved(step)


@contextlib.contextmanager
def watching(options: Distributed) -> Iterator[None]:
    """What processes that have met do together; one process is not watched."""
    import jax
    from jax._src import distributed

    state = distributed.global_state
    if state.client is None or state.num_processes == 1:
        yield
        return
    watchdog = Watchdog(state.client, state.process_id, state.num_processes, options)
    _running.append(watchdog)
    try:
        with _handling_aborts(lambda: watchdog.aborted(state.coordinator_address or "")):
            try:
                yield
                watchdog.close()
            except (jax.errors.JaxRuntimeError, ValueError) as error:
                if isinstance(error, jax.errors.JaxRuntimeError) or _LOST.match(str(error)):
                    watchdog.lost(error)
                raise
    finally:
        _running.remove(watchdog)
