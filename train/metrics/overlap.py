"""Metrics of the classes of pixels."""

import numpy as np


def class_ious(right: np.ndarray, predicted: np.ndarray, labelled: np.ndarray) -> np.ndarray:
    """Pixels [C] of each class that are right, predicted and labelled so, of all pictures together -> intersection over
    union [C] (Everingham et al. 2010); NaN for a class that is nowhere predicted or labelled."""
    union = predicted + labelled - right
    return np.where(union > 0, right / np.maximum(union, 1), np.nan)


def mean_iou(right: np.ndarray, predicted: np.ndarray, labelled: np.ndarray) -> float:
    """The mean of `class_ious` over classes that occur; 0 where none does."""
    ious = class_ious(right, predicted, labelled)
    return 0.0 if np.isnan(ious).all() else float(np.nanmean(ious))
