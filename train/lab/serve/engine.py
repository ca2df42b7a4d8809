"""The thread that computes: it asks each kind of work for what is due, and does it in turns."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol, TypeAlias, final

from train import UserError
from train.lab.serve.body import Json

# What a model reads at a time: a text, the texts of a pair, a text with a count. And what it says of that.
Content: TypeAlias = Json
Said: TypeAlias = Json


class Overloaded(UserError):  # noqa: N818 (of what is asked, no fault of ours)
    """Too much waits already."""


def check_queue(waiting: int, count: int, limit: int) -> None:
    """Raises Overloaded where `count` texts more are too many."""
    if waiting + count > limit:
        raise Overloaded(f"{waiting} texts wait already; try again in a moment")


class EngineWork(Protocol):
    """A kind of work. `Engine` calls its members, with `changed` held but for `run`."""

    changed: threading.Condition  # of the engine: something came

    @property
    def waiting(self) -> int:
        """What waits or is worked on."""

    def delay(self, now: float) -> float:
        """Seconds until something is due: 0 is now, inf never."""

    def run(self) -> None:
        """Does what is due."""


class Item(NamedTuple):
    """What a request asks of a model.

    content: a text, or the texts of a pair
    tokens: its tokens
    answer: what the model says of it, or why it cannot
    """

    content: Content
    tokens: int
    answer: "Future[Said]"


@final
class Engine:
    """Does work on a thread of its own, until `close`; what it has taken by then is answered."""

    def __init__(self, works: Sequence[EngineWork]):
        self.works = works
        self.changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        for work in works:
            work.changed = self.changed

    def start(self):
        """Starts the thread."""
        self._thread.start()

    def close(self):
        """Ends the thread when nothing waits."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()
        self._thread.join()

    def _loop(self):
        while True:
            with self.changed:
                delays = [work.delay(time.monotonic()) for work in self.works]
                soonest = min(delays, default=math.inf)
                if soonest == math.inf and self._closed:
                    return
                if soonest > 0:
                    self.changed.wait(None if soonest == math.inf else soonest)
                    continue
            for work, delay in zip(self.works, delays, strict=True):
                if delay <= 0:
                    work.run()


@final
class BatchQueue:
    """Texts that are read in batches: each has the answer that it would have alone.

    A batch begins when its first text has waited `wait` seconds, or when `budget` tokens are there. It takes texts in
    their order, and ends before the first one that does not fit.
    """

    def __init__(self, answer: Callable[[list[Content]], Sequence[Said]], wait: float, budget: int, limit: int):
        self.answer, self.wait, self.budget, self.limit = answer, wait, budget, limit
        self.changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._first = math.inf  # when the first of them came

    @property
    def waiting(self) -> int:
        """Texts that wait."""
        return len(self._items)

    def submit(self, contents: Sequence[Content], tokens: Sequence[int]) -> "list[Future[Said]]":
        """The answers to come. Raises Overloaded where too many texts wait."""
        with self.changed:
            check_queue(len(self._items), len(contents), self.limit)
            items = [Item(content, count, Future()) for content, count in zip(contents, tokens, strict=True)]
            if not self._items:
                self._first = time.monotonic()
            self._items.extend(items)
            self.changed.notify_all()
        return [item.answer for item in items]

    def delay(self, now: float) -> float:
        """Seconds until a batch begins."""
        if not self._items:
            return math.inf
        is_full = sum(item.tokens for item in self._items) >= self.budget
        return 0.0 if is_full else max(0.0, self._first + self.wait - now)

    def run(self) -> None:
        """Answers a batch."""
        batch = [item for item in self._take() if item.answer.set_running_or_notify_cancel()]
        if batch:
            self._answer_all(batch)

    def _answer_all(self, batch: Sequence[Item]) -> None:
        """Answers a batch; where that fails, each of its texts alone, so that one text spoils no other."""
        try:
            _finish(batch, self.answer([item.content for item in batch]))
        except Exception as error:
            if len(batch) == 1:
                batch[0].answer.set_exception(_raisable(error))
                return
            for item in batch:
                self._answer_all([item])

    def _take(self) -> list[Item]:
        """The next batch."""
        with self.changed:
            batch = [self._items.popleft()]
            total = batch[0].tokens
            while self._items and total + self._items[0].tokens <= self.budget:
                batch.append(self._items.popleft())
                total += batch[-1].tokens
            self._first = time.monotonic() - self.wait if self._items else math.inf
            return batch


def _finish(batch: Sequence[Item], answers: Sequence[Said]) -> None:
    for item, answer in zip(batch, answers, strict=True):
        item.answer.set_result(answer)


def _raisable(error: Exception) -> Exception:
    """An error that an event loop can raise where it is awaited: a StopIteration would be waited for without end."""
    return RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
