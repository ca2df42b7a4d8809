"""Pictures of pictures, as PNG files: contact sheets, and maps laid over a picture."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from train.screens.plots import figure, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 8

# Letters of a line of a title.
_LETTERS = 24


def contact_sheet(images: np.ndarray, titles: Sequence[str], path: Path, columns: int | None = None):
    """Pictures uint8 [N,H,W,C] in rows of `columns`, by default eight, each under its title."""
    columns = min(columns or _COLUMNS, len(images))
    rows = -(-len(images) // columns)
    with panels(path, (1.5 * columns, 1.8 * rows), columns, rows) as all_axes:
        for panel in all_axes:
            panel.axis("off")
        for panel, image, title in zip(all_axes, images, titles, strict=False):
            _show(image, panel)
            panel.set_title(title, fontsize=7)


def similarities(images: np.ndarray, captions: Sequence[str], cosines: np.ndarray, path: Path):
    """Pictures uint8 [N,H,W,C] over a table of their cosines with captions, [captions, pictures]."""
    count, lines = len(images), [wrapped(caption) for caption in captions]
    with figure(path, (3 + 0.8 * count, 1.2 + 0.8 * len(lines))) as axes:
        axes.imshow(cosines, cmap="viridis", vmin=-1, vmax=1)
        axes.set_yticks(range(len(lines)), lines, fontsize=7)
        axes.set_xticks([])
        for row, column in np.ndindex(*cosines.shape):
            color = "black" if cosines[row, column] > 0.3 else "white"
            axes.text(column, row, f"{cosines[row, column]:.2f}", ha="center", va="center", fontsize=7, color=color)
        for column, image in enumerate(images):
            panel = axes.inset_axes((column - 0.45, -1.5, 0.9, 0.9), transform=axes.transData)
            _show(image, panel)
            panel.axis("off")


def wrapped(caption: str) -> str:
    """A caption in lines that fit over a picture."""
    return textwrap.fill(caption, _LETTERS)


def maps(image: np.ndarray, by_title: Mapping[str, np.ndarray], path: Path):
    """A picture uint8 [H,W,C], and beside it the same under maps [h,w] of patches: bright where they are large."""
    height, width = image.shape[:2]
    with panels(path, (2.4 * (1 + len(by_title)), 2.6), 1 + len(by_title)) as (first, *overlaid):
        for panel in (first, *overlaid):
            _show(image, panel)
            panel.axis("off")
        first.set_title("picture", fontsize=9)
        for panel, (title, values) in zip(overlaid, by_title.items(), strict=True):
            extent = (-0.5, width - 0.5, height - 0.5, -0.5)
            panel.imshow(values, cmap="inferno", alpha=0.65, extent=extent, interpolation="bilinear")
            panel.set_title(title, fontsize=9)


def _show(image: np.ndarray, panel: "Axes"):
    """Draws a picture uint8 [H,W,C]. A grey one is from black to white, whatever its darkest and lightest pixels."""
    panel.imshow(image[:, :, 0] if image.shape[2] == 1 else image, cmap="gray", vmin=0, vmax=255)
