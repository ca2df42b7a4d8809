"""Average precision of detected boxes, as COCO measures it (Lin et al. 2014; the rules of its evaluator)."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from train.metrics.boxes import corners

# Intersections over union from which a box counts as right, and recalls at which precision is read.
THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)


class Boxes(NamedTuple):
    """Boxes of N pictures, k places for each.

    classes: int [N,k]
    boxes: [N,k,4], the center's x and y, width and height, in any unit
    exists: bool [N,k], whether the place holds a box
    scores: [N,k] of detected boxes; of true ones, 1 for a crowd, which any count of boxes may lie in, and 0 for another
    """

    classes: np.ndarray
    boxes: np.ndarray
    exists: np.ndarray
    scores: np.ndarray

    def sorted(self) -> "Boxes":
        """The boxes of each picture, those with the highest scores first."""
        order = np.argsort(-np.where(self.exists, self.scores, -np.inf), axis=1, kind="stable")
        return Boxes(*(np.take_along_axis(x, order.reshape(*order.shape, *[1] * (x.ndim - 2)), 1) for x in self))


def average_precisions(detected: Boxes, truths: Boxes, classes: int) -> np.ndarray:
    """[THRESHOLDS,C]: the mean precision over RECALLS of every class; NaN for one without a true box that is no crowd.

    In each picture the box with the highest score chooses first, the true box of its class that it overlaps most. A box
    in a crowd counts nowhere.
    """
    detected = detected.sorted()
    is_right, counts = _matches(detected, truths)
    result = np.full((len(THRESHOLDS), classes), np.nan)
    for index in range(classes):
        total = (truths.exists & (truths.scores == 0) & (truths.classes == index)).sum()
        if total:
            of_class = detected.exists & (detected.classes == index)
            order = np.argsort(-detected.scores[of_class], kind="stable")
            for row, (right, count) in enumerate(zip(is_right, counts, strict=True)):
                result[row, index] = _mean_precision(right[of_class][order], count[of_class][order], int(total))
    return result


def _mean_precision(is_right: np.ndarray, counts: np.ndarray, total: int) -> float:
    """Boxes [n] by falling score, whether each is right and whether it counts; and the count of true boxes."""
    right = (is_right & counts).cumsum()
    precision = right / np.maximum(counts.cumsum(), 1)
    highest = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(right / total, RECALLS, side="left")
    return float(np.append(highest, 0.0)[places].mean())


def _matches(detected: Boxes, truths: Boxes) -> tuple[np.ndarray, np.ndarray]:
    """For sorted boxes bool [THRESHOLDS,N,k] twice: whether each is right, and whether it counts."""
    is_crowd = truths.exists & (truths.scores > 0)
    shape = (len(THRESHOLDS), *detected.exists.shape)
    is_right, counts = np.zeros(shape, bool), np.broadcast_to(detected.exists, shape).copy()
    is_free = np.broadcast_to(truths.exists & ~is_crowd, (len(THRESHOLDS), *truths.exists.shape)).copy()
    for place in range(shape[2]):
        box = detected.boxes[:, place]
        is_class = (detected.classes[:, place, None] == truths.classes) & detected.exists[:, place, None]
        ratio = np.where(is_class, _overlaps(box, truths.boxes, is_crowd), -1.0)
        allowed = np.where(is_free, ratio, -1.0)
        best = allowed.shape[2] - 1 - allowed[..., ::-1].argmax(2)  # of equal ones the last
        is_right[..., place] = np.take_along_axis(allowed, best[..., None], 2)[..., 0] >= THRESHOLDS[:, None]
        taken = is_right[..., place, None] & (best[..., None] == np.arange(allowed.shape[2]))
        is_free &= ~taken
        in_crowd = np.where(is_crowd, ratio, -1.0).max(1) >= THRESHOLDS[:, None]
        counts[..., place] &= is_right[..., place] | ~in_crowd
    return is_right, counts


def _overlaps(box: np.ndarray, truths: np.ndarray, is_crowd: np.ndarray) -> np.ndarray:
    """A box [N,4] and true ones [N,k,4] -> [N,k]: intersection over union; over the area of the box in a crowd."""
    (low, high), (true_low, true_high) = corners(box[:, None]), corners(truths)
    both = np.maximum(np.minimum(high, true_high) - np.maximum(low, true_low), 0).prod(-1)
    area = box[:, 2:].prod(-1)[:, None]
    return both / np.maximum(area + ~is_crowd * (truths[..., 2:].prod(-1) - both), 1e-12)


def summary(precisions: np.ndarray) -> Mapping[str, float]:
    """`ap`, `ap50` and `ap75` of `average_precisions`: means over classes, and over thresholds; 0 where no class is."""
    if np.isnan(precisions).all():
        return {"ap": 0.0, "ap50": 0.0, "ap75": 0.0}
    by_threshold = np.nanmean(precisions, axis=1)
    return {"ap": float(by_threshold.mean()), "ap50": float(by_threshold[0]), "ap75": float(by_threshold[5])}
