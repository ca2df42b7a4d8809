"""The order of examples, and their way to the devices."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from train.data.buckets import Buckets
from train.data.fields import BatchSpec, Field


def shuffled_rows(sizes: Sequence[int], seed: int, size: int):
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


def shuffled_batches(buckets: Sequence[Buckets], seed: int):
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


def layout(field: Field, shape: tuple[int, ...], mesh, parts: int = 1):
    """A field of shape [B, ...] as it lies on the mesh in [parts, B / parts, ...]: a `jax.ShapeDtypeStruct`.

    The letters of its axes say which mesh axes divide them. Lengths that `mesh.context` does not divide are filled up.
    """
    return _layout(field.axes, shape, field.dtype, mesh, parts)


@functools.cache
def _layout(axes: str, shape: tuple[int, ...], dtype, mesh, parts: int):
    """The same, computed once for each shape (M24: half of the time of `to_devices`)."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    import tfm

    sizes = dict(zip(axes, shape, strict=True)) | {"B": shape[0] // parts}
    shared = [letter for letter in axes if letter in tfm.AXES]
    for letter in shared:
        if "context" in tfm.AXES[letter].mesh:
            sizes[letter] += -sizes[letter] % mesh.shape["context"]
    places = tfm.partition("".join(shared), tuple(sizes[letter] for letter in shared), mesh)
    place_of = dict(zip(shared, places, strict=True))
    sharding = NamedSharding(mesh, PartitionSpec(None, *(place_of.get(letter) for letter in axes)))
    return jax.ShapeDtypeStruct((parts, *sizes.values()), dtype, sharding=sharding)


def to_devices(batch: Mapping[str, np.ndarray], spec: BatchSpec, mesh, parts: int = 1):
    """A host batch of fields [B, ...] -> arrays [parts, B / parts, ...] on the mesh.

    Lengths that `mesh.context` does not divide are filled up with zeros, which count for nothing.
    """
    import jax

    def send(name, array):
        target = layout(spec[name], array.shape, mesh, parts)
        array = array.reshape(*target.shape[:2], *array.shape[1:])
        if array.shape != target.shape:
            array = np.pad(array, [(0, size - now) for size, now in zip(target.shape, array.shape, strict=True)])
        return jax.make_array_from_callback(target.shape, target.sharding, array.__getitem__)

    return {name: send(name, array) for name, array in batch.items()}


def local_rows(mesh, parts: int, rows: int) -> np.ndarray:
    """Which of the rows of a batch the devices of this process compute on, bool [B]."""
    from jax.sharding import NamedSharding, PartitionSpec

    import tfm

    mine = np.zeros((parts, rows // parts), bool)
    sharding = NamedSharding(mesh, PartitionSpec(None, *tfm.partition("B", mine.shape[1:], mesh)))
    for place in sharding.addressable_devices_indices_map(mine.shape).values():
        mine[place] = True
    return mine.ravel()
