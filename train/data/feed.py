"""The order of examples, and their way to the devices."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from train.data.buckets import Buckets


def order(sizes: Sequence[int], seed: int, size: int):
    """A function from the number of a batch to the draws and rows of its `size` examples.

    Draw d has sizes[d] rows, and each draw is an epoch; after the last the first returns. Every row comes once an epoch, in an order of its
    own each time, without any state: example k of batch n has number n * size + k, so a run continues anywhere, on any number of devices.
    """
    import grain

    shuffled = [grain.MapDataset.range(rows).seed(seed + draw).shuffle().repeat() for draw, rows in enumerate(sizes)]
    ends = np.cumsum(sizes)

    def find(n: int) -> tuple[np.ndarray, np.ndarray]:
        numbers = np.arange(n * size, (n + 1) * size)
        cycles, offsets = np.divmod(numbers, ends[-1])
        draws = np.searchsorted(ends, offsets, side="right")
        places = cycles * np.take(sizes, draws) + offsets - np.take(ends - sizes, draws)
        return draws, np.array([shuffled[draw][int(place)] for draw, place in zip(draws, places, strict=True)])

    return find


def bucketed(buckets: Sequence[Buckets], seed: int):
    """The same for rows in buckets, those of each draw: a batch is all of one bucket, and -1 stands for a row that is empty."""
    ends = np.cumsum([each.batches for each in buckets])

    @functools.lru_cache(maxsize=2)
    def epoch(cycle: int, draw: int) -> list[np.ndarray]:
        return buckets[draw].epoch(np.random.default_rng([seed, 2, cycle, draw]))

    def find(n: int) -> tuple[np.ndarray, np.ndarray]:
        cycle, offset = divmod(n, int(ends[-1]))
        draw = int(np.searchsorted(ends, offset, side="right"))
        rows = epoch(cycle, draw)[offset - int(ends[draw]) + buckets[draw].batches]
        return np.full(len(rows), draw), rows

    return find


def layout(name: str, field: Any, mesh, parts: int = 1):
    """A field [B, ...] of a batch, or its shape, as it lies on the mesh in [parts, B / parts, ...]: a `jax.ShapeDtypeStruct`.

    Rows are spread over `data` and `fsdp`, positions [B,T] or [B,M] over `context`, which fills up lengths that it does not divide.
    """
    return _layout(name, tuple(field.shape), field.dtype, mesh, parts)


@functools.cache
def _layout(name: str, given: tuple[int, ...], dtype, mesh, parts: int):
    """The same, computed once for each shape (M24: half of the time of `put`)."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    import tfm

    rows, *length = given
    axes = ("BC" if name == "labels" else "BT")[: len(given)]
    shape = (rows // parts, *(size + -size % mesh.shape["context"] if axes == "BT" else size for size in length))
    sharding = NamedSharding(mesh, PartitionSpec(None, *tfm.partition(axes, shape, mesh)))
    return jax.ShapeDtypeStruct((parts, *shape), dtype, sharding=sharding)


def put(batch: Mapping[str, np.ndarray], mesh, parts: int = 1):
    """A host batch of fields [B, ...] -> arrays [parts, B / parts, ...] on the mesh; what fills up lengths are zeros, which count for
    nothing."""
    import jax

    def send(name, field):
        laid = layout(name, field, mesh, parts)
        field = field.reshape(*laid.shape[:2], *field.shape[1:])
        if field.shape != laid.shape:
            field = np.pad(field, [(0, size - now) for size, now in zip(laid.shape, field.shape, strict=True)])
        return jax.make_array_from_callback(laid.shape, laid.sharding, field.__getitem__)

    return {name: send(name, field) for name, field in batch.items()}


def share(mesh, parts: int, rows: int) -> np.ndarray:
    """Which of the rows of a batch the devices of this process compute on, bool [B]."""
    from jax.sharding import NamedSharding, PartitionSpec

    import tfm

    mine = np.zeros((parts, rows // parts), bool)
    sharding = NamedSharding(mesh, PartitionSpec(None, *tfm.partition("B", mine.shape[1:], mesh)))
    for place in sharding.addressable_devices_indices_map(mine.shape).values():
        mine[place] = True
    return mine.ravel()
