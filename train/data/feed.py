"""The order of examples, and their way to the devices."""

from collections.abc import Mapping, Sequence

import numpy as np


def order(sizes: Sequence[int], seed: int):
    """A function from example numbers to (draw, row): draw d has sizes[d] rows, and each is an epoch; after the last the first returns.

    Every row comes once an epoch, in an order of its own each time, without any state: example k of batch n has number n * size + k, so a
    run continues anywhere, on any number of devices.
    """
    import grain

    shuffled = [grain.MapDataset.range(rows).seed(seed + draw).shuffle().repeat() for draw, rows in enumerate(sizes)]
    ends = np.cumsum(sizes)

    def find(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cycles, offsets = np.divmod(numbers, ends[-1])
        draws = np.searchsorted(ends, offsets, side="right")
        places = cycles * np.take(sizes, draws) + offsets - np.take(ends - sizes, draws)
        return draws, np.array([shuffled[draw][int(place)] for draw, place in zip(draws, places, strict=True)])

    return find


def put(batch: Mapping[str, np.ndarray], mesh, parts: int = 1):
    """A host batch of fields [B, ...] -> arrays [parts, B / parts, ...] on the mesh, rows spread over `data` and `fsdp`."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    import tfm

    def send(field):
        field = field.reshape(parts, -1, *field.shape[1:])
        rows = tfm.partition("B", field.shape[1:2], mesh)
        return jax.device_put(field, NamedSharding(mesh, PartitionSpec(None, *rows)))

    return {name: send(field) for name, field in batch.items()}
