"""Ctrl-C and SIGTERM. Where they come decides what they do:

before or after a command     the process ends, as while a command imports modules
in a command                  `Interrupted` is raised; a process that then does not end is ended after PATIENCE seconds
while a `Deferral` has begun  they are noted, for there is something to save; the third signal ends the process

Some callers swallow exceptions, such as callbacks of the garbage collector: Interrupted is then raised once more. A
main thread in compiled code, as while XLA compiles, sees no signal, so that another thread ends the process.
"""

import atexit
import contextlib
import gc
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

# Seconds in which a command ends on its own, after one signal and after more.
PATIENCE, SHORT_PATIENCE = 5.0, 1.0

# Objects that are made before Python looks for garbage among them; 700 are usual.
_THRESHOLD = 50_000

_WORDS: dict[int, str] = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Interrupted(KeyboardInterrupt):
    """A signal ends the command."""


class Outcome:
    """How a command ends: its exit code."""

    code = 0


class _State:
    """What is known of signals in this process."""

    is_process = False  # whether the command is the process, which ends with it
    in_command = False
    is_deferred = False
    is_raised = False
    signum = 0  # the first signal, 0 before it
    repeats = 0  # signals that this process has sent itself


_state = _State()


def install():
    """Handles signals from now on: for a process that is about to run a command, before it imports what that needs.

    It also makes collections of garbage rare: a start makes a million objects that stay (M106).
    """
    if _state.is_process:
        return
    _state.is_process = True
    gc.set_threshold(_THRESHOLD)
    for signum in _WORDS:
        signal.signal(signum, _receive)
    atexit.register(_ignore)  # the first one that is registered is the last one that is called


def _ignore():
    """The interpreter is at its end, where it gives up handlers: a signal must not change the exit code any more."""
    for signum in _WORDS:
        signal.signal(signum, signal.SIG_IGN)


@contextlib.contextmanager
def handled() -> Iterator[Outcome]:
    """A command runs inside. One that a signal has ended, or stopped, has one word on stderr, and the code 130 (Ctrl-C)
    or 143 (SIGTERM)."""
    outcome = Outcome()
    is_outermost = not _state.in_command and threading.current_thread() is threading.main_thread()
    with _watched(outcome) if is_outermost else contextlib.nullcontext():
        signum = 0
        try:
            yield outcome
        except KeyboardInterrupt:
            signum = signal.SIGINT
        signum = _state.signum or signum
        if signum and not outcome.code:
            outcome.code = 128 + signum
            print(_WORDS[signum], file=sys.stderr)


def received() -> int:
    """The first signal that has come, or 0."""
    return _state.signum


def record(signum: int) -> bool:
    """Whether a signal has come; `signum` is one that has come to another process, or 0."""
    _state.signum = _state.signum or signum
    return bool(_state.signum)


class Deferral:
    """From `begin` on, until its context ends, signals wait."""

    def __enter__(self):
        return self

    def __exit__(self, *error: object):
        _state.is_deferred = False

    def begin(self):
        """There is something to save from now on."""
        _state.is_deferred = True

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Work inside may be cut off: Interrupted ends it at once, and after it there is still something to save."""
        try:
            _state.is_deferred = False
            if _state.signum:
                raise Interrupted
            yield
        finally:
            _state.is_deferred, _state.is_raised = True, False


@contextlib.contextmanager
def _watched(outcome: Outcome) -> Iterator[None]:
    """Signals are handled inside, and a thread sees to it that the process ends."""
    previous = {signum: signal.signal(signum, _receive) for signum in _WORDS}
    hook = sys.unraisablehook
    sys.unraisablehook = _raise_again(hook)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()
    _state.signum, _state.repeats, _state.is_raised, _state.in_command = 0, 0, False, True
    try:
        yield
    finally:
        _state.in_command, _state.signum = False, 0
        signal.set_wakeup_fd(wakeup)
        os.close(writer)
        if _state.is_process:
            previous = dict.fromkeys(_WORDS, lambda signum, frame: os._exit(outcome.code))
        elif sys.unraisablehook.__name__ == "raise_again":
            sys.unraisablehook = hook
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def _receive(signum: int, frame: FrameType | None):
    _state.signum = _state.signum or signum
    if not _state.in_command or (not _state.is_deferred and _is_import(frame)):
        _end(signum)
    if not _state.is_deferred and not _state.is_raised:
        _state.is_raised = True
        raise Interrupted


def _is_import(frame: FrameType | None) -> bool:
    """Whether a module is being imported: some compiled ones crash when that is cut off."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _raise_again(hook):
    """The hook for exceptions that nobody can catch: Interrupted is raised once more, a little later."""

    def raise_again(unraisable):
        if not isinstance(unraisable.exc_value, Interrupted):
            hook(unraisable)
            return
        _state.is_raised = False
        _state.repeats += 1
        main = threading.main_thread().ident
        threading.Timer(0.05, signal.pthread_kill, (main, _state.signum)).start()

    return raise_again


def _watch(reader: int):
    """Ends the process if the command does not end after a signal, or is asked for the third time."""
    first, count, started = 0, 0, None
    with open(reader, "rb", buffering=0) as signals:
        while True:
            if select.select([signals], [], [], 0.2 if first else None)[0]:
                received_now = signals.read(64)
                if not received_now:
                    return
                signums = [signum for signum in received_now if signum in _WORDS]
                first, count = first or next(iter(signums), 0), count + len(signums)
            if _state.is_deferred:
                started = None
            elif first:
                started = started or time.monotonic()
            patience = PATIENCE if count - _state.repeats < 2 else SHORT_PATIENCE
            if count - _state.repeats > 2 or (started and time.monotonic() - started > patience):
                _end(first)


def _end(signum: int):
    """Ends the process: what it has written is whole, for files take their names when they are complete."""
    os.write(2, f"{_WORDS[signum]}\n".encode())
    os._exit(128 + signum)
