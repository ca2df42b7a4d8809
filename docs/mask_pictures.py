"""Pictures of masks: a row is a query, a column is a key."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

import tfm
from tfm.catalogue.patterns.transient import Extended
from tfm.config import patterns
from tfm.tables.patterns import pattern_of

matplotlib.use("Agg")
from matplotlib import pyplot as plt

COUNT = 32  # positions of a text
SIDE = 6  # patches of a side of an image
TEXTS = tfm.Config(layers=1, length=4096)
IMAGES = tfm.override(
    TEXTS, {"input": "patches", "input.size": SIDE, "input.patch": 1, "input.cls": False, "position": "none"}
)

# Options with which a small mask shows what its pattern is, by tag; pictures have their titles.
PICTURED: dict[str, dict[str, Any]] = {
    "full": {"full": patterns.Full()},
    "local": {"local": patterns.Local(block=8), "local, two blocks": patterns.Local(block=8, neighbours=1)},
    "sliding": {
        "sliding": patterns.Sliding(window=5),
        "sliding, dilated": patterns.Sliding(window=9, dilation=3),
    },
    "strided": {"strided": patterns.Strided(stride=6)},
    "fixed": {"fixed": patterns.Fixed(block=8, summary=2)},
    "global": {"global": patterns.Global(window=5, tokens=2)},
    "etc": {"etc": patterns.Etc(radius=2, tokens=4)},
    "transient": {"transient, keys of blocks at the right": patterns.Transient(radius=2, block=8)},
    "bigbird": {"bigbird": patterns.BigBird(block=4, random=1)},
    "windows": {
        "windows of 6 x 6 patches": patterns.Windows(window=3),
        "windows, shifted": patterns.Windows(window=3, shift=1),
    },
    "neighbourhood": {"neighbourhood of 6 x 6 patches": patterns.Neighbourhood(window=3)},
}


def draw_pattern(tag: str, path: Path) -> None:
    """The pictures of one pattern, side by side. Raises KeyError for a pattern without options above."""
    pictured = PICTURED[tag]
    figure, axes = plt.subplots(1, len(pictured), figsize=(2.9 * len(pictured), 3), squeeze=False)
    for axis, (title, options) in zip(axes.flat, pictured.items(), strict=True):
        _show(axis, title, *masks_of(options))
    _save(figure, path)


def draw_overview(path: Path) -> None:
    """The picture of the README: nine masks of patterns, and one of packed texts."""
    tags = ("full", "local", "sliding", "strided", "fixed", "global", "bigbird")
    pictured = [item for tag in tags for item in PICTURED[tag].items()]
    figure, axes = plt.subplots(2, 5, figsize=(12.5, 5.4))
    for axis, (title, options) in zip(axes.flat, pictured, strict=False):
        _show(axis, title, *masks_of(options))
    packed = np.asarray(tfm.segments(np.array([[1] * 12 + [2] * 14 + [3] * 6])).dense(COUNT)[0])
    _show(axes.flat[-1], "three texts in a row", packed, np.tril(packed))
    _save(figure, path)


def masks_of(options: Any) -> tuple[np.ndarray, np.ndarray]:
    """What an encoder and what a decoder sees, bool [T,S] each; of a pattern for encoders the decoder sees nothing."""
    if isinstance(options, patterns.Windows | patterns.Neighbourhood):
        both = _dense(options, IMAGES, False, SIDE * SIDE)
        return both, np.zeros_like(both)
    both = _dense(options, TEXTS, False, COUNT)
    if isinstance(options, patterns.Transient):
        return both, np.zeros_like(both)
    return both, _dense(options, TEXTS, True, COUNT) & np.tril(np.ones((COUNT, COUNT), bool))


def _dense(options: Any, config: tfm.Config, causal: bool, count: int) -> np.ndarray:
    """The mask of a pattern, bool [T,S]; keys of blocks stand behind those of tokens."""
    mask = pattern_of(options).mask(options, config, causal)
    if mask is None:
        return np.ones((count, count), bool)
    if isinstance(options, patterns.Transient):
        return np.asarray(Extended(mask, count).dense(count, count + count // options.block)[0])
    return np.asarray(mask.dense(count)[0])


def _show(axis: Any, title: str, both: np.ndarray, causal: np.ndarray) -> None:
    """One mask: what a decoder sees is dark, what an encoder alone sees is pale."""
    axis.imshow(np.maximum(0.3 * both, causal), cmap="Blues", vmin=0, vmax=1.15)
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, fontsize=10)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    draw_overview(Path(__file__).parent / "pictures" / "masks.png")
