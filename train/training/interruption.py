"""Ctrl-C and SIGTERM end a run between two steps."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def catch_signals() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether Ctrl-C or SIGTERM has come; a second signal acts as usual."""
    received: list[int] = []
    previous: dict[int, Any] = {}

    def restore():
        for signum, handler in previous.items():
            signal.signal(signum, handler)

    def receive(signum, frame):
        received.append(signum)
        restore()

    try:
        for signum in (signal.SIGINT, signal.SIGTERM):
            previous[signum] = signal.signal(signum, receive)
    except ValueError:  # not the main thread, as in a notebook's worker: no signals arrive there
        previous.clear()
    try:
        yield lambda: bool(received)
    finally:
        restore()
