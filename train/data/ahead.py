"""Batches that are made before they are asked for, while the devices compute."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Ahead:
    """Calls make(n, ...), and begins make(n + 1, ...) to make(n + count, ...) on a thread.

    make must be a pure function: what it returns does not depend on what was asked for before. Its other arguments are
    the same every time.
    """

    def __init__(self, make: Callable[..., Any], count: int):
        self._make, self._count = make, count
        self._futures: dict[int, Future] = {}
        self._pool = ThreadPoolExecutor(1, "batches")

    def __call__(self, n: int, *arguments: Any) -> Any:
        """make(n, *arguments); raises what it raises."""
        next_batches = range(n + 1, n + 1 + self._count)
        for stale in self._futures.keys() - {n, *next_batches}:
            self._futures.pop(stale).cancel()
        for index in (n, *next_batches):
            if index not in self._futures:
                self._futures[index] = self._pool.submit(self._make, index, *arguments)
        return self._futures.pop(n).result()
