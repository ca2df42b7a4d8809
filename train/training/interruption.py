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
        for number, handler in previous.items():
            signal.signal(number, handler)

    def receive(number, frame):
        received.append(number)
        restore()

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, receive)
    except ValueError:  # not the main thread, as in a notebook's worker: no signals arrive there
        previous.clear()
    try:
        yield lambda: bool(received)
    finally:
        restore()
