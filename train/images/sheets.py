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

# Classes whose colours stand under a sheet.
_LEGEND = 24

# What stands over each box of a picture, and the box: its least x and y, width and height in pixels.
Labelled = Sequence[tuple[str, Sequence[float]]]

# Letters of a line of a title.
_LETTERS = 24


def contact_sheet(images: np.ndarray, titles: Sequence[str], path: Path, columns: int | None = None):
    """Pictures uint8 [N,H,W,C] in rows of `columns`, by default eight, each under its title; videos [N,F,H,W,C] in one
    column, their frames side by side."""
    frames = images.shape[1] if images.ndim == 5 else 1
    if images.ndim == 5:
        images, columns = strip(images), 1
    columns = min(columns or _COLUMNS, len(images))
    rows = -(-len(images) // columns)
    with panels(path, (1.5 * columns * frames, 1.8 * rows), columns, rows) as all_axes:
        for panel in all_axes:
            panel.axis("off")
        for panel, image, title in zip(all_axes, images, titles, strict=False):
            _show(image, panel)
            panel.set_title(title, fontsize=7)


def strip(pixels: np.ndarray) -> np.ndarray:
    """Frames [...,F,H,W,C] -> [...,H,F*W,C], side by side."""
    rows = np.moveaxis(pixels, -4, -3)
    return rows.reshape(*rows.shape[:-3], -1, rows.shape[-1])


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


def masks(images: np.ndarray, truths: np.ndarray, guesses: np.ndarray, names: Sequence[str], path: Path):
    """Pictures uint8 [N,H,W,C], each beside what its pixels are, and what they are taken for: classes [N,H,W], 255
    without one. Under them the colours of the first classes."""
    columns = 6
    rows = -(-3 * len(images) // columns)
    colours = palette()
    with panels(path, (1.5 * columns, 1.7 * rows + 0.4), columns, rows) as all_axes:
        for panel in all_axes:
            panel.axis("off")
        for row, image in enumerate(images):
            first = all_axes[3 * row]
            _show(image, first)
            parts = {"right": truths[row], "predicted": guesses[row]}
            for panel, (title, classes) in zip(all_axes[3 * row + 1 :], parts.items(), strict=False):
                panel.imshow(painted(image, classes, colours), interpolation="nearest")
                panel.set_title(title, fontsize=7)
        shown = dict(zip(names, colours / 255, strict=False))
        patches = [all_axes[0].fill([], [], color=color, label=name)[0] for name, color in [*shown.items()][:_LEGEND]]
        all_axes[0].figure.legend(handles=patches, loc="outside lower center", ncols=6, fontsize=7, frameon=False)


def boxes(images: np.ndarray, labelled: "Sequence[Labelled]", titles: Sequence[str], path: Path):
    """Pictures uint8 [N,H,W,C] in rows of six, each under its title, with its boxes and what stands over each."""
    columns = min(6, len(images))
    rows = -(-len(images) // columns)
    with panels(path, (1.8 * columns, 2.0 * rows), columns, rows) as all_axes:
        for panel in all_axes:
            panel.axis("off")
        for panel, image, inner, title in zip(all_axes, images, labelled, titles, strict=False):
            _show(image, panel)
            _draw_boxes(inner, panel, 5)
            panel.set_title(title, fontsize=7)


def boxed(image: np.ndarray, labelled: "Labelled", path: Path):
    """A picture uint8 [H,W,C] with boxes and what stands over each; a small one is drawn larger."""
    height, width = image.shape[:2]
    side = max(4.0, max(height, width) / 120)
    with panels(path, (side * width / max(height, width), side * height / max(height, width) + 0.2)) as (panel,):
        panel.axis("off")
        _show(image if image.ndim == 3 else image[:, :, None], panel)
        _draw_boxes(labelled, panel, 8)


def _draw_boxes(labelled: "Labelled", panel: "Axes", size: int):
    """Draws boxes in the colours of their classes."""
    names = sorted({text.split()[0] for text, _ in labelled})
    for text, (x, y, width, height) in labelled:
        color = f"C{sum(map(ord, text.split()[0])) % 10}" if len(names) > 1 else "C3"
        xs, ys = np.array([0, width, width, 0, 0]) + x - 0.5, np.array([0, 0, height, height, 0]) + y - 0.5
        panel.plot(xs, ys, color=color, linewidth=1.2)
        panel.text(x - 0.5, y - 0.7, text, color=color, fontsize=size, va="bottom")


def palette() -> np.ndarray:
    """Colours of 256 classes, uint8 [256,3]: the first twenty are those of matplotlib's tab20, and 0 is a dark grey."""
    import matplotlib as mpl

    colours = mpl.colormaps["tab20"](np.r_[:20:2, 1:20:2])[:, :3]
    hues = mpl.colormaps["hsv"]((np.arange(235) * 0.381966) % 1)[:, :3]
    return np.rint(255 * np.concatenate([np.full((1, 3), 0.25), colours, hues])).astype(np.uint8)


def painted(image: np.ndarray, classes: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """A picture uint8 [H,W,C], in grey, under the colours of its classes [H,W]; a line is where two meet."""
    mixed = 0.35 * image.mean(2, keepdims=True) + 0.65 * colours[classes]
    edges = np.zeros(classes.shape, bool)
    edges[1:] |= classes[1:] != classes[:-1]
    edges[:, 1:] |= classes[:, 1:] != classes[:, :-1]
    mixed[edges] *= 0.5
    return np.rint(mixed).astype(np.uint8)


def wrapped(caption: str) -> str:
    """A caption in lines that fit over a picture."""
    return textwrap.fill(caption, _LETTERS)


def maps(image: np.ndarray, by_title: Mapping[str, np.ndarray], path: Path):
    """A picture uint8 [H,W,C], and beside it, or below a wide one, the same under maps [h,w] of patches: bright where
    they are large."""
    (height, width), count = image.shape[:2], 1 + len(by_title)
    wide = width > 3 * height
    size = (1.2 * width / height, 1.6 * count) if wide else (2.4 * count, 2.6)
    with panels(path, size, *((1, count) if wide else (count, 1))) as (first, *overlaid):
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
