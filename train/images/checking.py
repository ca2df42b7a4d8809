"""Every picture is decoded once before a run: broken ones are named and counted. The verdict on files is cached."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from train import UserError
from train.data.sources.files import Row
from train.devices import cpu
from train.files import cache
from train.images.decoding import BrokenImageError
from train.settings.schema import Data

if TYPE_CHECKING:
    from train.images.decoding import Picture


Source = TypeVar("Source")
Outcome = TypeVar("Outcome")

# Broken pictures that are named; the others are counted.
NAMED = 5

# Pictures that are decoded at a time.
THREADS = max(2, cpu.core_count())

# Items that wait for a thread.
_TOGETHER = 1024

# Raised with what counts as broken, so that verdicts are made anew.
_VERSION = "1"


class Verdict(NamedTuple):
    """A hash of the content of a picture, and why it is broken; "" where it is whole."""

    digest: str
    reason: str


def checked(rows: Sequence[Row], source: str, data: Data, log) -> list[Row]:
    """The rows whose pictures are whole, with the `digest` of each.

    Broken ones are left out, named and counted with --data.broken=skip. Otherwise the first is a UserError.
    """
    verdicts = _verdicts(rows, log)
    broken = [(row["image"], verdict.reason) for row, verdict in zip(rows, verdicts, strict=True) if verdict.reason]
    for image, reason in broken[:NAMED]:
        if data.broken != "skip":
            more = f" ({len(broken) - 1:,} more are broken)" if len(broken) > 1 else ""
            raise UserError(f"{image} {reason}{more}; repair it, or leave broken pictures out with --data.broken=skip")
        log.info(f"left out: {image} {reason}")
    if len(broken) > NAMED:
        log.info(f"left out: {len(broken) - NAMED:,} more")
    if broken:
        log.info(f"{source}: {len(broken):,} of {len(rows):,} pictures are broken")
    if len(broken) == len(rows):
        raise UserError(f"{source} has no picture that is whole; {broken[0][0]} {broken[0][1]}")
    return [
        {**row, "digest": verdict.digest} for row, verdict in zip(rows, verdicts, strict=True) if not verdict.reason
    ]


def _verdicts(rows: Sequence[Row], log) -> list[Verdict]:
    """The verdict on every picture: that of the cache if no file has changed."""
    images = [row["image"] for row in rows]
    stamps = [image.stamp() for image in images]
    if None in stamps:  # in memory: nothing to decode
        return [Verdict(image.digest(), "") for image in images]
    name = f"pictures-{cache.digest([_VERSION], stamps)}"
    return [Verdict(*pair) for pair in cache.json_value(name, lambda: _decoded(images, log))]


def _decoded(images: "Sequence[Picture]", log) -> list[Verdict]:
    """The verdict on every picture, after decoding it."""
    return outcomes(_verdict, images, log, "decoding every picture once")


def outcomes(read: Callable[[Source], Outcome], items: Sequence[Source], log, title: str) -> list[Outcome]:
    """What `read` says of every item, on several threads; a progress bar shows the title."""
    with log.progress(title, len(items)) as advance, ThreadPoolExecutor(THREADS) as pool:
        said = []
        for start in range(0, len(items), _TOGETHER):  # M107: a waiting item takes 2 KB
            for outcome in pool.map(read, items[start : start + _TOGETHER]):
                said.append(outcome)
                advance(1)
    return said


def _verdict(image: "Picture") -> Verdict:
    """Decodes a picture."""
    try:
        image.open(3)
        return Verdict(image.digest(), "")
    except BrokenImageError as error:
        return Verdict("", str(error))
