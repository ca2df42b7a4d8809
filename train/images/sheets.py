"""Pictures of pictures, as PNG files: contact sheets, and maps laid over a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from train.reporting.plots import figure

_COLUMNS = 8


def contact_sheet(images: np.ndarray, titles: Sequence[str], path: Path, columns: int | None = None):
    """Pictures uint8 [N,H,W,C] in rows of `columns`, by default eight, each under its title."""
    columns = min(columns or _COLUMNS, len(images))
    rows = -(-len(images) // columns)
    with figure(path, (1.5 * columns, 1.8 * rows), columns, rows) as axes:
        panels = np.atleast_1d(axes).ravel()
        for panel in panels:
            panel.axis("off")
        for panel, image, title in zip(panels, images, titles, strict=False):
            panel.imshow(_shown(image), **_COLOURS)
            panel.set_title(title, fontsize=7)


def maps(image: np.ndarray, by_title: Mapping[str, np.ndarray], path: Path):
    """A picture uint8 [H,W,C], and beside it the same under maps [h,w] of patches: bright where they are large."""
    height, width = image.shape[:2]
    with figure(path, (2.4 * (1 + len(by_title)), 2.6), 1 + len(by_title)) as axes:
        panels = np.atleast_1d(axes)
        for panel in panels:
            panel.imshow(_shown(image), **_COLOURS)
            panel.axis("off")
        panels[0].set_title("picture", fontsize=9)
        for panel, (title, values) in zip(panels[1:], by_title.items(), strict=True):
            extent = (-0.5, width - 0.5, height - 0.5, -0.5)
            panel.imshow(values, cmap="inferno", alpha=0.65, extent=extent, interpolation="bilinear")
            panel.set_title(title, fontsize=9)


# Grey pictures are from black to white, whatever their darkest and lightest pixels are.
_COLOURS = {"cmap": "gray", "vmin": 0, "vmax": 255}


def _shown(image: np.ndarray) -> np.ndarray:
    return image[:, :, 0] if image.shape[2] == 1 else image
