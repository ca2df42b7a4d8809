"""Sources apart: validation batches of one source, training batches that say theirs, and what is measured of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from train.data import mixture
from train.data.fields import Field
from train.data.mixture import Phase

# Between the name of a sum or a metric and that of a source.
OF = "/"

# The field of training batches of several sources: 1 for the source of a row. No task declares it.
FIELD = "sources"
SPEC = {FIELD: Field("Bs", np.float32)}


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


def field(sources: np.ndarray, count: int) -> dict[str, np.ndarray]:
    """The field `FIELD` [B,S] of training rows whose sources have these numbers, int [B]; of a single source none."""
    return {FIELD: np.eye(count, dtype=np.float32)[sources]} if count > 1 else {}


def epochs(sizes: Mapping[str, int], phases: Sequence[Phase], rows: int) -> dict[str, float]:
    """`epochs/NAME`: how often the rows of each of several sources were read in the first `rows` rows of a run."""
    counts = mixture.counts_before(np.array([rows]), phases, list(sizes))[:, 0] if len(sizes) > 1 else np.zeros(0)
    return {f"epochs{OF}{name}": float(count / sizes[name]) for name, count in zip(sizes, counts, strict=False)}


def train_losses(names: Sequence[str], sums: Mapping[str, float]) -> dict[str, float]:
    """`loss/NAME` of every source that has targets among the sums of training steps, where they have it by number."""
    weights = {name: (index, sums.get(f"weight{OF}{index}", 0.0)) for index, name in enumerate(names)}
    return {f"loss{OF}{name}": sums[f"loss{OF}{index}"] / weight for name, (index, weight) in weights.items() if weight}


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
