"""Plots of a run, as PNG files in plots/."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from train.metrics.calibration import Reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Classes that plots/confusion.png names.
MAX_NAMED = 40


def curves(lines: Sequence[Mapping[str, float | str]], folder: Path):
    """plots/loss.png and plots/lr.png from the lines of metrics.jsonl; of a mixture also plots/sources.png. Nothing
    where all lines are of one step: there is no curve, and a command is over sooner."""
    if len({line["step"] for line in lines}) < 2:
        return
    _curve(lines, {"train": ("train", "loss"), "eval": ("eval", "loss")}, "loss", folder / "plots" / "loss.png")
    _curve(lines, {"train": ("train", "rate")}, "learning rate", folder / "plots" / "lr.png")
    keys = dict.fromkeys(key for line in lines if line["split"] == "train" for key in line if key.startswith("loss/"))
    if keys:
        of_sources = {key.removeprefix("loss/"): ("train", key) for key in keys}
        _curve(lines, of_sources, "loss of training rows", folder / "plots" / "sources.png")


def _curve(lines: Sequence[Mapping[str, float | str]], metrics: Mapping[str, tuple[str, str]], label: str, path: Path):
    """Metrics by step: a line for each name, of a split and a key."""
    with figure(path, (7, 4)) as axes:
        for name, (split, key) in metrics.items():
            points = [(line["step"], line[key]) for line in lines if line["split"] == split and key in line]
            if points:
                steps, values = zip(*points, strict=True)
                axes.plot(steps, values, label=name, marker="o" if len(points) < 30 else None, markersize=3)
        axes.set(xlabel="step", ylabel=label)
        axes.grid(alpha=0.3)
        if len(axes.lines) > 1:
            axes.legend(frameon=False)


# The lines of plots/layers.png, by sublayer.
_LAYER_STYLES = {"mixer": "-", "cross": ":", "feed_forward": "--"}


def layers(lines: Sequence[Mapping[str, float | str]], folder: Path):
    """plots/layers.png from the lines of metrics.jsonl: norms of gradients and updates, and of branches over the
    stream, by step; nothing without `--log.layers`. Deeper layers are darker; feed-forward layers are dashed."""
    names = dict.fromkeys(name for line in lines for name in line if name.startswith("layers/"))
    if not names:
        return
    measures = {"grad_norm": "norm of gradients", "update_norm": "norm of updates", "branch": "branch / stream"}
    with panels(folder / "plots" / "layers.png", (15, 4.6), len(measures)) as all_axes:
        for axes, (measure, label) in zip(all_axes, measures.items(), strict=True):
            parts = [name.split("/")[2].split(".") for name in names if name.startswith(f"layers/{measure}/")]
            of_layers = sorted((part for part in parts if part[-1] in _LAYER_STYLES), key=_depth)
            _layer_lines(axes, lines, [f"layers/{measure}/{'.'.join(part)}" for part in of_layers])
            axes.set(xlabel="step", title=label, yscale="log")
            axes.grid(alpha=0.3)


def _depth(part: Sequence[str]) -> tuple[Sequence[str], int, int]:
    """The place of a sublayer, such as encoder, 0, mixer, among others: by tower, by layer, and in its block."""
    return part[:-2], int(part[-2]), [*_LAYER_STYLES].index(part[-1])


def _layer_lines(axes: "Axes", lines: Sequence[Mapping[str, float | str]], names: Sequence[str]):
    """A line for each of these metrics."""
    import matplotlib as mpl

    for index, name in enumerate(names):
        points = [(line["step"], line[name]) for line in lines if name in line]
        color = mpl.colormaps["viridis_r"](0.1 + 0.9 * index / max(1, len(names) - 1))
        is_named = len(names) <= 8 or index < 2 or index >= len(names) - 2
        label = name.split("/")[2] if is_named else None
        axes.plot(
            *zip(*points, strict=True), _LAYER_STYLES[name.rpartition(".")[2]], color=color, label=label, linewidth=1.2
        )
    axes.legend(frameon=False, fontsize=8)


def confusion(table: np.ndarray, names: Sequence[str], folder: Path):
    """plots/confusion.png of a confusion matrix [C,C]: colors are shares of a class (row), numbers are rows of data.

    Of many classes every few are named.
    """
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    size = 2.5 + 0.55 * min(len(names), MAX_NAMED)
    with figure(folder / "plots" / "confusion.png", (size + 1, size)) as axes:
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        if len(names) <= 20:
            for row, column in np.ndindex(*table.shape):
                color = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, f"{table[row, column]:,}", ha="center", va="center", color=color)
        ticks = range(0, len(names), -(-len(names) // MAX_NAMED))
        names = [names[tick] for tick in ticks]
        axes.set(xlabel="taken for", ylabel="class", xticks=ticks, yticks=ticks, yticklabels=names)
        short = max(map(len, names)) < 10
        axes.set_xticklabels(names, rotation=0 if short else 45, ha="center" if short else "right")


def reliability(measured: Reliability, scaled: Reliability, folder: Path):
    """plots/reliability.png: the share of right answers by confidence, as measured and after temperature scaling.

    Larger points are more rows; on the diagonal, confidence is accuracy.
    """
    with figure(folder / "plots" / "reliability.png", (4.5, 4.5)) as axes:
        axes.plot((0, 1), (0, 1), color="0.7", linestyle="--")
        for label, bins in (("measured", measured), ("temperature scaled", scaled)):
            filled = bins.counts > 0
            sizes = 10 + 150 * bins.counts[filled] / max(bins.counts.sum(), 1)
            x, y = bins.confidence[filled], bins.accuracy[filled]
            axes.plot(x, y, alpha=0.5)
            axes.scatter(x, y, sizes, label=f"{label}: error {bins.error:.3f}")
        axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(-0.02, 1.02))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="upper left")


def types(scores: Mapping[str, Mapping[str, float]], folder: Path):
    """plots/entities.png: bars of precision, recall and F1 of entities of each type, with how many there are."""
    names = [f"{kind} ({values['support']:,})" for kind, values in scores.items()]
    with figure(folder / "plots" / "entities.png", (7, 1.2 + 0.6 * max(len(names), 1))) as axes:
        rows = np.arange(len(names))
        for offset, (part, color) in enumerate((("precision", "#9ecae1"), ("recall", "#4292c6"), ("f1", "#08306b"))):
            values = [kind_scores[part] for kind_scores in scores.values()]
            axes.barh(rows + 0.27 * (offset - 1), values, height=0.25, color=color, label=part)
        axes.set(xlim=(0, 1), yticks=rows, yticklabels=names)
        axes.invert_yaxis()
        axes.grid(axis="x", alpha=0.3)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3)


def positions(similarity: np.ndarray | None, scores: np.ndarray | None, folder: Path):
    """plots/positions.png: the similarity [T,T] of positions in the embeddings, and what positions add to scores
    [R,T,T] of R heads, NaN for pairs that do not see each other: their mean by pair, and every head by distance.
    Nothing where there is neither."""
    tables = [] if similarity is None else [("cosine similarity of positions", "position", "position", similarity)]
    if scores is not None and np.isfinite(scores).any():
        tables += [
            ("added to scores, mean of heads", "position of the key", "position of the query", scores.mean(0)),
            ("added to scores, by distance", "key - query", "head, from the first layer on", _by_distance(scores)),
        ]
    if not tables:
        return
    with panels(folder / "plots" / "positions.png", (5.2 * len(tables), 4.4), len(tables)) as all_axes:
        for panel, (title, x_label, y_label, table) in zip(all_axes, tables, strict=True):
            limit = np.nanmax(np.abs(table)) or 1.0
            rows, columns = table.shape
            first = -(columns // 2) if rows != columns else 0
            extent = (first - 0.5, first + columns - 0.5, rows - 0.5, -0.5)
            image = panel.imshow(table, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", extent=extent)
            panel.set(title=title, xlabel=x_label, ylabel=y_label)
            panel.locator_params(axis="y", integer=True)
            if rows != columns:  # distances that no token sees, as later ones of a decoder, are left out
                seen = np.flatnonzero(np.isfinite(table).any(0))
                panel.set_xlim(first + seen[0] - 0.5, first + seen[-1] + 0.5)
            panel.figure.colorbar(image, ax=panel)


def _by_distance(scores: np.ndarray) -> np.ndarray:
    """[R,T,T] -> the means [R,2T-1] along diagonals, from the largest distance to the left, of the pairs that see each
    other, which are not NaN; NaN where there is none."""
    distances = range(1 - scores.shape[-1], scores.shape[-1])
    diagonals = [np.diagonal(scores, distance, 1, 2) for distance in distances]
    sums = np.stack([np.nansum(diagonal, -1) for diagonal in diagonals], axis=1)
    counts = np.stack([np.isfinite(diagonal).sum(-1) for diagonal in diagonals], axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def alignments(pairs: Sequence[tuple[Sequence[str], Sequence[str], np.ndarray]], folder: Path):
    """plots/alignment-1.png and so on, of source words, target words and attention weights [target, source]."""
    for index, (source, target, weights) in enumerate(pairs, start=1):
        size = (1.5 + 0.38 * len(source), 1.2 + 0.32 * len(target))
        with figure(folder / "plots" / f"alignment-{index}.png", size) as axes:
            axes.imshow(weights, cmap="Blues", vmin=0, aspect="auto")
            axes.set_xticks(range(len(source)), source, rotation=60, ha="left", rotation_mode="anchor")
            axes.set_yticks(range(len(target)), target)
            axes.xaxis.tick_top()


def answers(lengths: Sequence[int], exact: Sequence[float], odds: Sequence[float], threshold: float, folder: Path):
    """plots/answers.png: the exact matches by the words of the right answer (0: none), and, where questions may have no
    answer, how much better no answer is than the best one, in questions with and without an answer."""
    words, right, scores = np.minimum(lengths, 10), np.asarray(exact), np.asarray(odds)
    finite = np.isfinite(scores)
    has_odds = bool(finite.any())
    path, size = folder / "plots" / "answers.png", (11 if has_odds else 6, 4)
    with panels(path, size, 1 + has_odds) as (by_length, *by_odds):
        sizes = np.unique(words)
        means = [right[words == size].mean() for size in sizes]
        labels = [f"{'none' if size == 0 else '10+' if size == 10 else size}" for size in sizes]
        bars = by_length.bar(labels, means, color="tab:blue")
        by_length.bar_label(bars, [f"{(words == size).sum():,}" for size in sizes], fontsize=8)
        by_length.set(xlabel="words of the right answer", ylabel="exact match", ylim=(0, 1.08))
        for panel in by_odds:
            edges = np.histogram_bin_edges(scores[finite], 40).tolist()
            for name, chosen in (("has an answer", words > 0), ("has none", words == 0)):
                panel.hist(scores[finite & chosen], edges, alpha=0.6, label=name)
            panel.axvline(threshold, color="black", linewidth=1, label="threshold")
            panel.set(xlabel="score of no answer - score of the best answer", ylabel="questions")
            panel.legend(frameon=False)


def heads(
    counts: Sequence[int],
    metrics: Mapping[str, Sequence[float]],
    kept: int,
    scores: Mapping[str, np.ndarray],
    folder: Path,
):
    """plots/heads.png: metrics by the heads that every layer has, a line where `kept` of them are; and the scores
    [...,K,G] of all heads, a row for each layer."""
    rows = {name: values.reshape(-1, values.shape[-2] * values.shape[-1]) for name, values in scores.items()}
    short = {name: name.replace(".layers", "").removesuffix(".mixer") for name in rows}
    labels = [f"{short[name]} {row}" for name, values in rows.items() for row in range(len(values))]
    table = np.concatenate(list(rows.values()))
    size = (4 * len(metrics) + 4 + 0.3 * table.shape[1], max(4, 1.5 + 0.3 * len(table)))
    with panels(folder / "plots" / "heads.png", size, len(metrics) + 1) as (*by_metric, last):
        for axes, (name, values) in zip(by_metric, metrics.items(), strict=True):
            axes.plot(counts, values, marker="o")
            axes.axvline(kept, color="0.6", linestyle="--", label=f"{kept} kept")
            axes.set(xlabel="heads of a layer", ylabel=name, xticks=sorted(counts))
            axes.grid(alpha=0.3)
            axes.legend(frameon=False)
        image = last.imshow(table, cmap="Blues", vmin=min(0, table.min()), aspect="auto")
        last.set(xlabel="head", title="score", xticks=range(table.shape[1]), yticks=range(len(table)))
        last.set_yticklabels(labels, fontsize=7)
        last.figure.colorbar(image, ax=last)


@contextlib.contextmanager
def figure(path: Path, size: tuple[float, float]) -> Iterator["Axes"]:
    """Axes to draw on, saved to `path` afterwards."""
    with panels(path, size) as (axes,):
        yield axes


@contextlib.contextmanager
def panels(
    path: Path, size: tuple[float, float], columns: int = 1, rows: int = 1, file_format: str | None = None
) -> Iterator[list["Axes"]]:
    """The axes of every panel, row by row, saved to `path` afterwards, as its ending or `file_format` says."""
    from matplotlib.figure import Figure  # pyplot would disturb the figures of a notebook

    path.parent.mkdir(exist_ok=True)
    page = Figure(figsize=size, layout="constrained")
    yield list(page.subplots(rows, columns, squeeze=False).ravel())
    page.savefig(path, dpi=120, format=file_format)
