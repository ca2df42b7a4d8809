"""Plots of series, as PNG files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from train.screens.plots import panels


def forecasts(windows: np.ndarray, targets: np.ndarray, quantiles: np.ndarray, titles: Sequence[str], path: Path):
    """Windows [N,L], what follows [N,H], and quantiles of it [N,H,q], the middle one as a line, the outer ones as a
    band."""
    columns = min(2, len(windows))
    rows = -(-len(windows) // columns)
    with panels(path, (5 * columns, 2.2 * rows), columns, rows) as all_axes:
        for axes, window, after, levels, title in zip(all_axes, windows, targets, quantiles, titles, strict=False):
            steps = np.arange(len(after))
            axes.plot(np.arange(-len(window), 0), window, color="0.4", linewidth=1)
            axes.plot(steps, after, color="black", linewidth=1, label="right")
            axes.plot(steps, levels[:, levels.shape[1] // 2], color="tab:orange", linewidth=1.5, label="predicted")
            axes.fill_between(steps, levels[:, 0], levels[:, -1], color="tab:orange", alpha=0.25, linewidth=0)
            axes.set_title(title, fontsize=8)
            axes.tick_params(labelsize=7)
            axes.grid(alpha=0.3)
        for axes in all_axes[len(windows) :]:
            axes.axis("off")
        all_axes[0].legend(frameon=False, fontsize=7)
