"""Boxes and their average precision, against a plain evaluator that follows COCO's rules with loops."""

import numpy as np
import pytest

from train.metrics.boxes import overlaps
from train.metrics.detection import RECALLS, THRESHOLDS, Boxes, average_precisions, summary


def random_boxes(rng, count, places, classes, crowds=0.0):
    """Boxes of `count` pictures on a coarse grid, so that many overlap; some places are empty."""
    boxes = np.concatenate([rng.integers(2, 7, (count, places, 2)) / 8, rng.integers(1, 5, (count, places, 2)) / 8], 2)
    boxes = boxes + rng.normal(0, 0.01, boxes.shape)
    exists = rng.random((count, places)) < 0.8
    scores = rng.random((count, places)) if not crowds else (rng.random((count, places)) < crowds).astype(float)
    return Boxes(rng.integers(0, classes, (count, places)), boxes, exists, scores)


def area_of_both(a, b):
    """The area that two boxes share."""
    sides = [
        min(a[n] + a[n + 2] / 2, b[n] + b[n + 2] / 2) - max(a[n] - a[n + 2] / 2, b[n] - b[n + 2] / 2) for n in (0, 1)
    ]
    return max(0.0, sides[0]) * max(0.0, sides[1])


def plain_precision(detected, truths, label, threshold):
    """The average precision of a class at a threshold; None without a true box."""
    outcomes, total = [], 0
    for picture in range(len(detected.classes)):
        right = [n for n in range(truths.classes.shape[1]) if truths.exists[picture, n]]
        right = [n for n in right if truths.classes[picture, n] == label]
        total += sum(truths.scores[picture, n] == 0 for n in right)
        taken = set()
        shown = [n for n in range(detected.classes.shape[1]) if detected.exists[picture, n]]
        shown = [n for n in shown if detected.classes[picture, n] == label]
        for box in sorted(shown, key=lambda n: -detected.scores[picture, n]):
            a, best, ratio_of_best, in_crowd = detected.boxes[picture, box], None, threshold, False
            for n in right:
                b, is_crowd = truths.boxes[picture, n], truths.scores[picture, n] > 0
                both, area = area_of_both(a, b), a[2] * a[3]
                ratio = both / (area if is_crowd else area + b[2] * b[3] - both)
                if is_crowd:
                    in_crowd |= ratio >= threshold
                elif n not in taken and ratio >= ratio_of_best:
                    best, ratio_of_best = n, ratio
            if best is not None:
                taken.add(best)
            if best is not None or not in_crowd:
                outcomes.append((detected.scores[picture, box], best is not None))
    if not total:
        return None
    outcomes.sort(key=lambda pair: -pair[0])
    points, hits = [], 0
    for count, (_, is_right) in enumerate(outcomes, 1):
        hits += is_right
        points.append((hits / total, hits / count))
    return np.mean([max((p for r, p in points if r >= recall), default=0.0) for recall in RECALLS])


def test_average_precision_is_that_of_a_plain_evaluator():
    """200 sets of random boxes, with crowds and empty places; recalls are not those of rounding."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        count, classes = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        truths = random_boxes(rng, count, int(rng.integers(1, 5)), classes, crowds=0.2)
        detected = random_boxes(rng, count, int(rng.integers(1, 7)), classes)
        precisions = average_precisions(detected, truths, classes)
        for row in (0, 4, 9):
            for label in range(classes):
                expected = plain_precision(detected, truths, label, THRESHOLDS[row])
                assert np.isnan(precisions[row, label]) if expected is None else True
                if expected is not None:
                    assert precisions[row, label] == pytest.approx(expected, abs=1e-12)


def test_a_summary_is_the_mean_over_classes_that_occur():
    precisions = np.full((10, 3), np.nan)
    assert summary(precisions) == {"ap": 0.0, "ap50": 0.0, "ap75": 0.0}
    precisions[:, 0], precisions[:, 2] = np.linspace(1, 0.1, 10), 0.5
    means = summary(precisions)
    assert means == pytest.approx({"ap": 0.525, "ap50": 0.75, "ap75": 0.5})


def test_overlaps_are_those_of_pixels():
    """Of boxes on a grid whose pixels are counted."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        low, size = rng.integers(0, 8, (2, 2)), rng.integers(1, 8, (2, 2))
        cells = np.zeros((2, 16, 16), bool)
        for cell, (x, y), (width, height) in zip(cells, low, size, strict=True):
            cell[y : y + height, x : x + width] = True
        hull = np.zeros((16, 16), bool)
        (x, y), (right, bottom) = low.min(0), (low + size).max(0)
        hull[y:bottom, x:right] = True
        union, both = (cells[0] | cells[1]).sum(), (cells[0] & cells[1]).sum()
        boxes = np.concatenate([low + size / 2, size], 1).astype(np.float32)
        ratio, generalized = overlaps(boxes[0], boxes[1])
        assert float(ratio) == pytest.approx(both / union, abs=1e-5)
        assert float(generalized) == pytest.approx(both / union - (hull.sum() - union) / hull.sum(), abs=1e-5)


@pytest.mark.parity
def test_average_precision_is_that_of_pycocotools():
    coco, evaluation = pytest.importorskip("pycocotools.coco"), pytest.importorskip("pycocotools.cocoeval")
    rng = np.random.default_rng(2)
    for _ in range(20):
        truths, detected = random_boxes(rng, 12, 5, 3, crowds=0.15), random_boxes(rng, 12, 8, 3)
        official = coco.COCO()
        official.dataset = {
            "images": [{"id": n, "width": 100, "height": 100} for n in range(12)],
            "categories": [{"id": n, "name": str(n)} for n in range(3)],
            "annotations": [
                {"id": 1 + n, "image_id": p, "iscrowd": int(truths.scores[p, k]), **_official(truths, p, k)}
                for n, (p, k) in enumerate(np.argwhere(truths.exists).tolist())
            ],
        }
        official.createIndex()
        results = official.loadRes(
            [
                {"image_id": p, "score": detected.scores[p, k], **_official(detected, p, k)}
                for p, k in np.argwhere(detected.exists).tolist()
            ]
        )
        evaluator = evaluation.COCOeval(official, results, "bbox")
        evaluator.evaluate()
        evaluator.accumulate()
        precision = evaluator.eval["precision"][:, :, :, 0, 2].mean(1)
        expected = np.where(precision < 0, np.nan, precision)
        np.testing.assert_allclose(average_precisions(detected, truths, 3), expected, atol=1e-9)


def _official(boxes, picture, place):
    """The fields of a box in COCO's files, of a picture of 100 x 100 pixels."""
    x, y, width, height = 100 * boxes.boxes[picture, place]
    box = [x - width / 2, y - height / 2, width, height]
    return {"category_id": int(boxes.classes[picture, place]), "bbox": box, "area": width * height}
