"""What SentEval draws, and when it stops: folds of scikit-learn, starts of torch's linear layers, orders of numpy."""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

from train import UserError

Params = TypeVar("Params")


def stratified_folds(labels: np.ndarray, count: int, seed: int, where: str) -> np.ndarray:
    """Classes int [N] -> the fold of each row, int [N]: those of scikit-learn's StratifiedKFold, shuffled.

    Every fold has nearly the same share of each class. Classes count in the order in which they first occur. Raises
    UserError where a fold, or all classes, would have no row.
    """
    _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    codes = np.argsort(np.argsort(first))[codes]
    sizes = np.bincount(codes)
    if sizes.max() < count:
        raise UserError(
            f"{where} has no class with {count} rows, one a fold (the largest has {sizes.max()}); "
            "choose a smaller --classifier.kfold"
        )
    in_order = np.sort(codes)
    allocation = np.stack([np.bincount(in_order[fold::count], minlength=len(sizes)) for fold in range(count)])
    generator = np.random.RandomState(seed)
    folds = np.empty(len(labels), np.int64)
    for code in range(len(sizes)):
        of_class = np.arange(count).repeat(allocation[:, code])
        generator.shuffle(of_class)
        folds[codes == code] = of_class
    return folds


def linear_starts(
    seed: int, sizes: tuple[int, ...], generator: np.random.RandomState | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Sizes D, ..., C of torch's linear layers, made after torch.manual_seed -> kernels float32 [D,C] and biases [C].

    Uniform within 1 / sqrt(D); kernels of torch are [C,D]. Both generators are MT19937 with the same seeding, and a
    float32 takes 24 bits of a draw. A `generator` that has made layers before goes on.
    """
    generator = generator or np.random.RandomState(seed)
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        bound = 1 / math.sqrt(inputs)
        kernel = _uniform(generator, inputs * outputs, bound).reshape(outputs, inputs).T
        layers.append((kernel, _uniform(generator, outputs, bound)))
    return layers


def _uniform(generator: np.random.RandomState, count: int, bound: float) -> np.ndarray:
    draws = np.frombuffer(generator.bytes(4 * count), "<u4")
    units = (draws & 0xFFFFFF).astype(np.float32) * np.float32(2**-24)
    return units * np.float32(2 * bound) - np.float32(bound)


class Orders:
    """The orders of rows, epoch by epoch, as numpy.random.permutation draws them after numpy.random.seed(seed).

    Fits with as many rows share them, for each fit begins with the same seed. `skipped` rows were permuted before, to
    hold some of them out.
    """

    def __init__(self, seed: int):
        self.seed = seed
        self.streams: dict[tuple[int, int], tuple[Iterator[np.ndarray], list[np.ndarray]]] = {}

    def order(self, count: int, epoch: int, skipped: int = 0) -> np.ndarray:
        """int32 [count]: the order of an epoch, the first of which is 0."""
        if (count, skipped) not in self.streams:
            self.streams[count, skipped] = self._draw(count, skipped), []
        stream, drawn = self.streams[count, skipped]
        while len(drawn) <= epoch:
            drawn.append(next(stream))
        return drawn[epoch]

    def _draw(self, count: int, skipped: int) -> Iterator[np.ndarray]:
        generator = np.random.RandomState(self.seed)
        if skipped:
            generator.permutation(skipped)
        while True:
            yield generator.permutation(count).astype(np.int32)


def held_out(rows: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows -> those to train on, and a share held out for early stopping, in the order of torch's path of SentEval."""
    order = np.random.RandomState(seed).permutation(len(rows))
    cut = int(share * len(rows))
    return rows[order[cut:]], rows[order[:cut]]


def best_round(start: Params, rounds: Iterable[tuple[Params, float]], tenacity: int) -> tuple[Params, float]:
    """The parameters of the round with the best score, and that score; the start and -1 where no score is above -1.

    The first round that does not rise after `tenacity` such rounds is the last; their count never restarts.
    """
    best_params, best, misses = start, -1.0, 0
    for params, score in rounds:
        if score > best:
            best_params, best = params, score
        elif misses >= tenacity:
            break
        else:
            misses += 1
    return best_params, best
