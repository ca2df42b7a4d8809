"""Spectrograms side by side, as a PNG file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from train.screens.plots import panels

# Spectrograms of a row.
_COLUMNS = 4


def spectrograms(frames: Sequence[np.ndarray], titles: Sequence[str], path: Path):
    """Spectrograms [T,C], each under its title: time to the right, bands of mels upwards."""
    columns = min(_COLUMNS, len(frames))
    rows = -(-len(frames) // columns)
    with panels(path, (2.2 * columns, 1.9 * rows), columns, rows) as all_axes:
        for axes in all_axes:
            axes.axis("off")
        for axes, values, title in zip(all_axes, frames, titles, strict=False):
            axes.imshow(values.T, origin="lower", aspect="auto", cmap="magma")
            axes.set_title(title, fontsize=8)


def alignments(frames: Sequence[np.ndarray], attention: Sequence[tuple[np.ndarray, Sequence[str]]], folder: Path):
    """plots/alignment.png of the folder `plots`: spectrograms [T,C], and under each the weights [tokens,S] with which
    its tokens read it."""
    columns = min(_COLUMNS, len(frames))
    rows = 2 * -(-len(frames) // columns)
    folder.mkdir(parents=True, exist_ok=True)
    with panels(folder / "alignment.png", (2.8 * columns, 1.7 * rows), columns, rows) as all_axes:
        for axes in all_axes:
            axes.axis("off")
        for index, (values, (weights, tokens)) in enumerate(zip(frames, attention, strict=True)):
            row, column = divmod(index, columns)
            upper, lower = (all_axes[(2 * row + part) * columns + column] for part in (0, 1))
            upper.imshow(values.T, origin="lower", aspect="auto", cmap="magma")
            lower.imshow(weights, aspect="auto", cmap="Blues")
            lower.axis("on")
            lower.set_xticks([])
            lower.set_yticks(range(len(tokens)), tokens, fontsize=7)
