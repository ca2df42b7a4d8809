"""The order of examples, and their way to the devices."""

from collections.abc import Mapping

import numpy as np


def order(rows: int, seed: int):
    """A function from example number to row: every row once an epoch, in an order of its own each time, without any state.

    Example k of batch n has number n * size + k, so a run continues anywhere, on any number of devices.
    """
    import grain

    shuffled = grain.MapDataset.range(rows).seed(seed).shuffle().repeat()
    return lambda numbers: np.array([shuffled[int(number)] for number in numbers])


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
