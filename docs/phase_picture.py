"""A picture of the phases of a recipe: length of rows, rows of a batch, masking and rate over the steps.

`python docs/phase_picture.py TO.png --preset=modernbert-tiny [--phases=recipe.toml]`
"""

import sys
from pathlib import Path

import matplotlib
import numpy as np

from train.settings.schema import Run
from train.tasks import phases, resolve
from train.training.rates import rates

matplotlib.use("Agg")
from matplotlib import pyplot as plt

PANELS = {
    "length of rows": lambda run: run.batch.length,
    "rows of a batch": lambda run: run.batch.size,
    "share of masked tokens": lambda run: run.task.rate,
}


def draw(run: Run, path: Path) -> None:
    """Draws the settings of every step of a run of masked language modelling."""
    parts = phases.step_ranges(run)
    edges = [part.first for part in parts] + [run.steps]
    steps = np.unique(np.linspace(0, run.steps - 1, 2000).astype(int))
    figure, axes = plt.subplots(len(PANELS) + 1, 1, figsize=(7, 6), sharex=True, layout="constrained")
    for panel, (name, value) in zip(axes, PANELS.items(), strict=False):
        panel.stairs([value(part.run) for part in parts], edges, color="tab:blue", linewidth=1.8, baseline=None)
        panel.set_ylabel(name.replace(" of ", "\nof "))
        panel.set_ylim(0, 1.15 * max(value(part.run) for part in parts))
    axes[-1].plot(steps, rates(run)(steps), color="tab:red", linewidth=1.8)
    axes[-1].set(ylabel="rate", xlabel="step", xlim=(0, run.steps), ylim=(0, None))
    for panel in axes:
        for begins in {part.begins for part in parts} - {0}:
            panel.axvline(begins, color="0.6", linewidth=0.8, linestyle=":")
        panel.grid(alpha=0.2)
    for part in {part.phase: part for part in parts}.values():
        place = ((part.begins + part.ends) / 2, 1.02)
        axes[0].annotate(f"phase {part.phase}", place, xycoords=axes[0].get_xaxis_transform(), ha="center")
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    path, *flags = sys.argv[1:]
    draw(resolve.resolve(["--task=mlm", *flags], None, None)[0], Path(path))
