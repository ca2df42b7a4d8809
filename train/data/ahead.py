"""Work on threads, in the order in which it is asked for: batches made ahead, and batches worked at side by side."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Ahead(Generic[Result]):
    """Calls make(n, ...), and begins make(n + 1, ...) to make(n + count, ...) on a thread.

    make must be a pure function: what it returns does not depend on what was asked for before. Its other arguments are
    the same every time.
    """

    def __init__(self, make: Callable[..., Result], count: int):
        self._make, self._count = make, count
        self._futures: dict[int, Future[Result]] = {}
        self._pool = ThreadPoolExecutor(1, "batches")

    def __call__(self, n: int, *arguments: object) -> Result:
        """make(n, *arguments); raises what it raises."""
        next_batches = range(n + 1, n + 1 + self._count)
        for stale in self._futures.keys() - {n, *next_batches}:
            self._futures.pop(stale).cancel()
        for index in (n, *next_batches):
            if index not in self._futures:
                self._futures[index] = self._pool.submit(self._make, index, *arguments)
        return self._futures.pop(n).result()


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item], count: int) -> Iterator[Result]:
    """work(item) of every item, in order, on `count` threads; raises what it raises.

    Threads that need the same program at once wait for one compilation of it.
    """
    if count == 1:
        yield from map(work, items)
        return
    pool, futures = ThreadPoolExecutor(count, "side by side"), deque[Future[Result]]()
    try:
        for item in items:
            futures.append(pool.submit(work, item))
            if len(futures) > 2 * count:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
