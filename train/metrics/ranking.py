"""How good the order of graded passages is, by the rules of trec_eval."""

import numpy as np


def ranking_metrics(scores: np.ndarray, grades: np.ndarray, present: np.ndarray) -> dict[str, float]:
    """scores, grades [N,C] and bool [N,C] of the passages of N lists -> mean `ndcg_10` and `mrr_10`.

    `ndcg_10`: the grades of the first ten, each divided by log2(rank + 1), over the best that is possible (Järvelin and
    Kekäläinen 2002); `mrr_10`: one over the rank of the first passage with a grade above 0, if it is among ten. Of
    equal scores the worst grade comes first. A list without a grade above 0 has 0.
    """
    order = np.lexsort((grades, -np.where(present, scores, -np.inf)), axis=1)
    gains = np.take_along_axis(np.where(present, grades, 0), order, 1)
    gains = np.maximum(gains, 0)
    ideal = -np.sort(-gains, axis=1)
    best = _discounted(ideal)
    is_relevant = gains[:, :10] > 0
    ranks = 1 + is_relevant.argmax(1)
    return {
        "ndcg_10": float(np.mean(_discounted(gains) / np.where(best > 0, best, 1))),
        "mrr_10": float(np.mean(np.where(is_relevant.any(1), 1 / ranks, 0))),
    }


def _discounted(gains: np.ndarray) -> np.ndarray:
    """gains [N,C] -> sums of the first ten by rank, [N]."""
    return (gains[:, :10] / np.log2(np.arange(2, 2 + min(10, gains.shape[1])))).sum(1)


def lists_of(queries: np.ndarray, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """Rows of equal queries as lists: queries int [N], columns [N] -> a column [lists,longest] of each, and bool: which
    places of it hold a row."""
    _, numbers = np.unique(queries, return_inverse=True)
    sizes = np.bincount(numbers)
    order = np.argsort(numbers, kind="stable")
    places = np.arange(len(order)) - (np.cumsum(sizes) - sizes)[numbers[order]]
    present = np.zeros((len(sizes), sizes.max(initial=0)), bool)
    present[numbers[order], places] = True
    lists = []
    for column in columns:
        array = np.zeros(present.shape, column.dtype)
        array[numbers[order], places] = column[order]
        lists.append(array)
    return *lists, present
