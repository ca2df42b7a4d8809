"""Sources of validation rows apart: batches of one source, and what is measured of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from train.data import mixture
from train.data.mixture import Phase

# Between the name of a sum or a metric and that of a source.
OF = "/"


class SourceBatch(NamedTuple):
    """A validation batch of one source, with its place among all: its rows, int [B], -1 for an empty one."""

    batch: int
    source: str
    rows: np.ndarray


def batches(sizes: Mapping[str, int], batch_size: int, max_batches: int = 0) -> list[SourceBatch]:
    """Batches of rows that stand source by source, `sizes[name]` of each; the last batch of a source may have empty
    rows.

    At most `max_batches` (0: all), divided by size, but one of each source. A batch has its place whatever the limit.
    """
    counts = {name: -(-size // batch_size) for name, size in sizes.items()}
    share = min(1.0, max_batches / max(1, sum(counts.values()))) if max_batches else 1.0
    kept: list[SourceBatch] = []
    batch = first = 0
    for name, size in sizes.items():
        for index in range(min(counts[name], max(1, int(share * counts[name])))):
            rows = np.arange(index * batch_size, (index + 1) * batch_size)
            kept.append(SourceBatch(batch + index, name, np.where(rows < size, first + rows, -1)))
        batch, first = batch + counts[name], first + size
    return kept


def epochs(sizes: Mapping[str, int], phases: Sequence[Phase], rows: int) -> dict[str, float]:
    """`epochs/NAME`: how often the rows of each of several sources were read in the first `rows` rows of a run."""
    counts = mixture.counts_before(np.array([rows]), phases, list(sizes))[:, 0] if len(sizes) > 1 else np.zeros(0)
    return {f"epochs{OF}{name}": float(count / sizes[name]) for name, count in zip(sizes, counts, strict=False)}


def metrics(
    of_sums: Callable[[Mapping[str, float]], Mapping[str, float]], sums: Mapping[str, object]
) -> Iterator[tuple[str, float]]:
    """`loss/NAME` of every source: what `of_sums` makes of the sums that have its name behind a slash."""
    by_source: dict[str, dict[str, float]] = {}
    for key, value in sums.items():
        name, slash, source = key.partition(OF)
        if slash:
            by_source.setdefault(source, {})[name] = value  # type: ignore[assignment]
    for source, own in by_source.items():
        yield f"loss{OF}{source}", of_sums(own)["loss"]
