"""How the texts of a run lie in rows: in shared ones, or each in a row of about its length, or of all places."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from train.data import balance
from train.data.buckets import bucket_sizes
from train.data.text_rows import Layout, Shape
from train.settings.schema import Config, Run

# Batches that are dealt at once; those that decide the length of rows, and draws of them at most.
_WINDOW, _LOOKED_AT, _DRAWS = 512, 512, 16

# The search for the number of rows of a batch: how many numbers it tries, on batches of how many texts in all.
_TRIED, _TRIED_ON = 32, 4_096

# The padding that longer rows may save, and the most that they may cost.
_PADDING, _DEARER = 0.05, 1.2

# The lengths of rows of which each has a text.
_SHAPES = 6


def can_share(model: Config) -> bool:
    """Whether a text in a shared row reads as in a row of its own."""
    return model.reads_packed and not _scaled_by_length(model)


def cannot_share(model: Config) -> str:
    """Why texts cannot share rows of a model."""
    if scalings := _scaled_by_length(model):
        return f"position.scaling={' and '.join(scalings)} depends on the length of a row"
    parts = [model.input, *(options for kind in model.kinds for options in kind)]
    names = dict.fromkeys(options.name for options in parts if not options.reads_packed)
    return f"{' and '.join(names)} cannot keep texts of a row apart"


def reads_padding(model: Config) -> bool:
    """Whether a result depends on the padding of its row, so that all rows need the length of those of training."""
    return any(getattr(kind.mixer, "reads_padding", False) for kind in model.kinds)


def _scaled_by_length(model: Config) -> list[str]:
    """The scalings of positions that depend on the length of a row."""
    scalings = [getattr(position, "scaling", None) for position in model.positions]
    return [scaling.name for scaling in scalings if scaling is not None and scaling.depends_on_length]


def plan(run: Run, sizes: Sequence[np.ndarray], devices: int | None = None, platform: str | None = None) -> Layout:
    """The layout of the batches of a run.

    sizes: the tokens of each text, [N], or [N,n] of examples of n texts, once for each segmentation
    devices, platform: where it runs, by default here
    """
    texts, by_text = sizes[0].size // max(1, len(sizes[0])), [part.reshape(len(part), -1) for part in sizes]
    size, length = texts_a_step(run, by_text), run.batch.length
    tokens = float(np.mean([part.sum(1).mean() for part in by_text])) * size
    alone = Layout(size, Shape(size * texts, 1, length), texts * length, tokens)
    if run.data.pack is False:
        return dataclasses.replace(alone, dealt="shuffled", reason="--data.pack=false")
    if not can_share(run.model):
        return _own_rows(run.model, alone, by_text)
    unit = row_unit(run, size, devices or jax.device_count())
    if unit == size or len(sizes[0]) < size:
        part = "step" if run.batch.accumulate == 1 else "part of a step"
        return dataclasses.replace(alone, reason=f"a {part} has one for each of {size // run.batch.accumulate} devices")
    multiple = 2 if (platform or jax.default_backend()) == "cpu" else 8
    shared = _shared_rows(alone, [part.sum(1) for part in by_text], unit, multiple, run.model.width)
    return shared or dataclasses.replace(alone, reason="shared rows would be dearer")


def texts_a_step(run: Run, sizes: Sequence[np.ndarray]) -> int:
    """The examples of a batch: --batch.size, or as many as fill --batch.tokens places but for a little padding.

    sizes: the tokens of the texts of each example, [N,n]
    """
    batch = run.batch
    if batch.tokens is None:
        return batch.size
    if can_share(run.model) and run.data.pack is not False:
        tokens = float(np.mean([part.sum(1).mean() for part in sizes])) / (1 - _PADDING)
    else:
        tokens = batch.length * sizes[0].shape[1]
    return batch.unit * max(1, int(batch.tokens / tokens) // batch.unit)


def row_unit(run: Run, size: int, devices: int) -> int:
    """What must divide the rows of a batch of `size` texts: its parts, and the devices that share rows."""
    sharing = devices // math.prod(max(1, cut) for cut in (run.mesh.tensor, run.mesh.context))
    return run.batch.accumulate * math.gcd(size // run.batch.accumulate, max(1, sharing))


def _own_rows(model: Config, alone: Layout, sizes: Sequence[np.ndarray]) -> Layout:
    """Each text in a row: of about its length in batches of similar lengths, or of all places where padding is read."""
    reason = cannot_share(model)
    if reads_padding(model):
        return dataclasses.replace(alone, dealt="shuffled", reason=f"{reason}, and reads padding")
    layout = dataclasses.replace(alone, dealt="alike", reason=reason)
    longest = [part.max(1)[members].max(1) for part, members in _example_batches(sizes, layout)]
    if not longest:
        return layout
    needed, last = np.concatenate(longest), min(alone.shape.length, max(int(part.max()) for part in sizes))
    lengths = sorted({*bucket_sizes(needed[:, None], _SHAPES)[:-1, 0].tolist(), last})
    mean = float(np.take(lengths, np.searchsorted(lengths, needed)).mean())
    return dataclasses.replace(layout.of_length(last), shorter=tuple(lengths[:-1]), mean_length=mean)


def _shared_rows(alone: Layout, sizes: Sequence[np.ndarray], unit: int, multiple: int, width: int) -> Layout | None:
    """Texts of these sizes [N] in shared rows, whose number `unit` divides, and whose length `multiple` divides; None
    where that would be dearer than a row for each."""
    size = alone.size
    lengths = np.concatenate([part[members] for part, members in _example_batches(sizes, alone)])

    def shared(rows: int, lengths: np.ndarray) -> Layout:
        """The layout of so many rows, in which batches of these lengths [E,size] fit."""
        slots = 1 + -(-size // rows)
        fullest = 1 + int(balance.tokens_of_rows(lengths, balance.share(lengths, rows, slots)).max())
        return dataclasses.replace(alone, shape=Shape(rows, slots, -(-fullest // multiple) * multiple))

    longest, total = int(lengths.max()), int(lengths.sum(1).max())

    def bound(rows: int) -> int:
        """What so many rows cost at least: they hold the longest text, and the batch of most tokens."""
        return Shape(rows, 1, max(longest, -(-total // rows))).cost(width)

    layouts, few = [alone], lengths[: max(1, _TRIED_ON // size)]
    for rows in sorted(range(unit, size, unit * max(1, size // (unit * _TRIED))), key=bound):
        chosen = _choose(layouts, width)
        if bound(rows) > chosen.shape.cost(width) * (1 if chosen.padding <= _PADDING else _DEARER):
            break
        layouts.append(shared(rows, few))
    chosen = _choose(layouts, width)
    return shared(chosen.shape.rows, lengths) if chosen.packs else None


def _example_batches(sizes: Sequence[np.ndarray], layout: Layout) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Some windows of batches of a run: the sizes of their examples, [W] or [W,n], and the members of each batch, int
    [E,size]; `sizes` are those of all, once for each segmentation."""
    rng, count, size = np.random.default_rng(0), len(sizes[0]), layout.size
    window = window_of(count, size) * size
    draws = range(max(len(sizes), min(_DRAWS, _LOOKED_AT * size // window)))
    parts = [rng.permutation(sizes[draw % len(sizes)])[:window] for draw in draws]
    deal = balance.deal_alike if layout.dealt == "alike" else balance.deal
    for part in parts:
        if len(part) == window:
            yield part, deal(part.reshape(window, -1).sum(1), size, rng)


def _choose(layouts: Sequence[Layout], width: int) -> Layout:
    """The cheapest layout, or one with little padding that is hardly dearer."""
    best = min(layout.shape.cost(width) for layout in layouts)
    fuller = [item for item in layouts if item.padding <= _PADDING and item.shape.cost(width) <= _DEARER * best]
    return min(fuller or layouts, key=lambda layout: layout.shape.cost(width))


def window_of(texts: int, size: int) -> int:
    """The batches that are dealt at once: those of an epoch, if they are not too many."""
    return max(1, min(_WINDOW, texts // size))
