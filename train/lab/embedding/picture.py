"""A map of texts in two dimensions: their vectors on the two principal components."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

# Texts whose words are shown, and their characters.
_NAMED, _CHARACTERS = 40, 40


def principal_components(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """vectors [N,D] -> places float64 [N,2] on the two directions of the largest variance, and their shares of it [2].

    Signs are such that the largest coordinate of a direction is positive. Pearson 1901.
    """
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    directions = directions[:, ::-1][:, :2]
    signs = np.sign(directions[np.abs(directions).argmax(0), np.arange(directions.shape[1])])
    places = centred @ (directions * signs)
    total = max(variances.sum(), 1e-30)
    return np.pad(places, ((0, 0), (0, 2 - places.shape[1]))), variances[::-1][:2] / total


def draw(vectors: np.ndarray, texts: Sequence[str], labels: Sequence[str], path: Path):
    """Draws the map into a picture; some texts stand beside their points, and `labels`, where there are any, are
    colours."""
    from matplotlib.figure import Figure

    places, shares = principal_components(vectors)
    figure = Figure(figsize=(10, 8), layout="constrained")
    axes = figure.subplots()
    names = sorted(set(labels))
    for name in names or [""]:
        members = [row for row in range(len(texts)) if not names or labels[row] == name]
        axes.plot(*places[members].T, "o", markersize=4 if len(texts) < 1000 else 2, alpha=0.6, label=name)
    for row in range(0, len(texts), max(1, len(texts) // _NAMED)):
        text = texts[row] if len(texts[row]) <= _CHARACTERS else f"{texts[row][: _CHARACTERS - 1]}\u2026"
        axes.annotate(text.replace("$", r"\$"), places[row], fontsize=6)
    if 1 < len(names) <= 20:
        axes.legend()
    axes.set(xlabel=f"first component, {shares[0]:.0%} of the variance")
    axes.set(ylabel=f"second component, {shares[1]:.0%}" if len(shares) > 1 else "")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
