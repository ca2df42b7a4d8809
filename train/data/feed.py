"""The order of rows, and the way of a batch to the devices."""

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from train.data import by_source, mixture
from train.data.buckets import Buckets
from train.data.fields import BatchSpec, Field
from train.data.mixture import Phase
from train.data.permutation import permute, permute_blocks
from train.data.row_plan import window_of
from train.data.text_rows import Layout

# Rows of a block that are read together, and the fewest blocks of a window: one for each row of a batch is enough.
_BLOCK, _WINDOW = 256, 512

# Batch n -> its segmentations and its rows, each int [B].
Order = Callable[[int], tuple[np.ndarray, np.ndarray]]


def shuffled_rows(sizes: Sequence[int], seed: int, batch_size: int) -> Order:
    """The rows of each batch: segmentation s has sizes[s] rows and is an epoch; after the last the first returns.

    Each epoch has an order of its own. It needs no state: example k of batch n has number n * batch_size + k, so a
    run resumes at any step, on any number of devices.
    """
    ends = np.cumsum(sizes)

    def rows_of(n: int) -> tuple[np.ndarray, np.ndarray]:
        examples = np.arange(n * batch_size, (n + 1) * batch_size)
        cycles, offsets = np.divmod(examples, ends[-1])
        chosen = np.searchsorted(ends, offsets, side="right")
        return chosen, _in_order(chosen, cycles, offsets - np.take(ends - sizes, chosen), sizes, seed, permute)

    return rows_of


def mixed_rows(sizes: Mapping[str, int], phases: Sequence[Phase], seed: int, batch_size: int, shuffle: str) -> Order:
    """The sources and the rows of each batch, as the phases of a mixture say; each source has epochs of its own.

    sizes: the rows of each source. shuffle: full | blocks: see `permute_blocks`. It needs no state either.
    """
    names, counts = list(sizes), list(sizes.values())
    blocks = functools.partial(permute_blocks, block=_BLOCK, window=max(_WINDOW, batch_size))

    def rows_of(n: int) -> tuple[np.ndarray, np.ndarray]:
        sources, numbers = mixture.rows_of(n * batch_size, batch_size, phases, names)
        epochs, places = np.divmod(numbers, np.take(counts, sources))
        permutation = permute if shuffle == "full" else blocks
        return sources, _in_order(sources, epochs, places, counts, seed, permutation)

    return rows_of


def _in_order(
    parts: np.ndarray,
    epochs: np.ndarray,
    places: np.ndarray,
    sizes: Sequence[int],
    seed: int,
    permutation: Callable[[np.ndarray, int, Sequence[int]], np.ndarray],
) -> np.ndarray:
    """The rows at places of epochs of parts of these sizes, all int [B]; each epoch of a part has a permutation."""
    rows = np.empty(len(places), np.int64)
    for part, epoch in dict.fromkeys(zip(parts.tolist(), epochs.tolist(), strict=True)):
        is_of = (parts == part) & (epochs == epoch)
        rows[is_of] = permutation(places[is_of], sizes[part], (seed, part, epoch))
    return rows


def dealt_texts(sizes: Sequence[np.ndarray], seed: int, layout: Layout) -> Order:
    """The texts of each batch in the places of a layout, -1 where there is none; epochs take turns as segmentations.

    sizes: the tokens of every text [N], once for each segmentation. Batches of a window, which follow one another, are
    dealt together (`Layout.deal`); it needs no state.
    """
    by_segmentation, batches = np.stack(sizes), window_of(len(sizes[0]), layout.size)
    count = by_segmentation.shape[1]

    @functools.lru_cache(maxsize=2)
    def epoch(index: int) -> np.ndarray:
        return np.random.default_rng([seed, 5, index]).permutation(count)

    @functools.lru_cache(maxsize=2)
    def window(index: int) -> tuple[np.ndarray, np.ndarray]:
        examples = np.arange(index * batches * layout.size, (index + 1) * batches * layout.size)
        epochs, offsets = np.divmod(examples, count)
        texts = np.concatenate([epoch(int(cycle))[offsets[epochs == cycle]] for cycle in np.unique(epochs)])
        segmentations = epochs % len(by_segmentation)
        lengths = by_segmentation[segmentations, texts]
        places = layout.deal(lengths, np.random.default_rng([seed, 6, index]))
        return segmentations[places], np.where(places < 0, -1, texts[places])

    def rows_of(n: int) -> tuple[np.ndarray, np.ndarray]:
        index, batch = divmod(n, batches)
        segmentations, texts = window(index)
        return segmentations[batch], texts[batch]

    return rows_of


def continued_rows(count: int, batch_size: int, first: int = 0) -> Order:
    """The rows of each batch, where row b of batch n + 1 continues row b of batch n; -1 is an empty row.

    The rows of the text stand in a circle, after empty ones that fill it up. Each row of a batch begins at a place of
    its own, equally far apart, and moves on by a row a batch; an epoch ends where the next one began. `first` moves all
    of them.
    """
    batches = -(-count // batch_size)

    def rows_of(n: int) -> tuple[np.ndarray, np.ndarray]:
        rows = (first + np.arange(batch_size) * batches + n) % (batches * batch_size)
        return np.zeros(batch_size, int), np.where(rows < count, rows, -1)

    return rows_of


def shuffled_batches(buckets: Sequence[Buckets], seed: int) -> Order:
    """The order of rows in buckets, of each segmentation: a batch is of one bucket, and -1 is an empty row."""
    ends = np.cumsum([bucket.batches for bucket in buckets])

    @functools.lru_cache(maxsize=2)
    def epoch(cycle: int, segmentation: int) -> list[np.ndarray]:
        return buckets[segmentation].epoch(np.random.default_rng([seed, 2, cycle, segmentation]))

    def rows_of(n: int) -> tuple[np.ndarray, np.ndarray]:
        cycle, offset = divmod(n, int(ends[-1]))
        chosen = int(np.searchsorted(ends, offset, side="right"))
        rows = epoch(cycle, chosen)[offset - int(ends[chosen]) + buckets[chosen].batches]
        return np.full(len(rows), chosen), rows

    return rows_of


def layout(field: Field, shape: tuple[int, ...], mesh, parts: int = 1):
    """A field of shape [B, ...] as it lies on the mesh in [parts, B / parts, ...]: a `jax.ShapeDtypeStruct`.

    The letters of its axes say which mesh axes divide them. Lengths that `mesh.context` does not divide are filled up.
    """
    return _layout(field.axes, shape, field.dtype, mesh, parts)


@functools.cache
def _layout(axes: str, shape: tuple[int, ...], dtype, mesh, parts: int):
    """`layout`, computed once for each shape (M24: half of the time of `to_devices`)."""
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

    spec = {**by_source.SPEC, **spec}

    def send(name, array):
        target = layout(spec[name], array.shape, mesh, parts)
        array = array.reshape(*target.shape[:2], *array.shape[1:])
        if array.shape != target.shape:
            array = np.pad(array, [(0, size - length) for size, length in zip(target.shape, array.shape, strict=True)])
        return jax.make_array_from_callback(target.shape, target.sharding, array.__getitem__)

    return {name: send(name, array) for name, array in batch.items()}


def local_rows(mesh, parts: int, rows: int) -> np.ndarray:
    """Whether the devices of this process compute on each row of a batch, bool [B]."""
    from jax.sharding import NamedSharding, PartitionSpec

    import tfm

    is_local = np.zeros((parts, rows // parts), bool)
    sharding = NamedSharding(mesh, PartitionSpec(None, *tfm.partition("B", is_local.shape[1:], mesh)))
    for index in sharding.addressable_devices_indices_map(is_local.shape).values():
        is_local[index] = True
    return is_local.ravel()


def only_local(rows: np.ndarray, local_rows: Callable[[int], np.ndarray] | None) -> np.ndarray:
    """Keeps this process's rows and replaces others by -1.

    The largest row number stays too: buckets look up the batch shape by it.
    """
    if local_rows is None:
        return rows
    keep = local_rows(len(rows)).copy()
    keep[rows.argmax()] = True
    return np.where(keep, rows, -1)
