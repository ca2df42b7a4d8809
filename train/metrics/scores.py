"""Metrics of classifications, and of texts that are predicted."""

import numpy as np


def perplexity(loss: float) -> float:
    """Of a mean loss in nats; finite, whatever the loss."""
    return float(np.exp(min(float(loss), 700.0)))


def auc(values: np.ndarray, positive: np.ndarray) -> float:
    """values [N] and bool [N] -> the area under the ROC curve: how probably a positive has a higher value than a
    negative, ties half (Mann & Whitney 1947); 0.5 where there are none of a kind."""
    from scipy import stats

    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return 0.5
    ranks = stats.rankdata(values.astype(np.float64))
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def classification_metrics(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """logits [N,C] and labels of N texts -> metrics by name.

    int [N] classes: accuracy, F1 of class 1 of two, macro F1, Matthews' correlation. float [N,C] ones and zeros: share
    of texts whose classes are all right, F1 over all decisions, macro F1. float [N] values: Pearson's and Spearman's
    correlations.
    """
    if labels.ndim == 2:
        return _multi_label(logits > 0, labels > 0)
    if np.issubdtype(labels.dtype, np.integer):
        return _single_label(confusion(logits.argmax(1), labels, logits.shape[1]))
    from scipy import stats

    values = logits[:, 0]
    if np.ptp(labels) == 0 or np.ptp(values) == 0 or len(labels) < 2:
        return {"pearson": 0.0, "spearman": 0.0}
    return {
        "pearson": float(stats.pearsonr(values, labels).statistic),
        "spearman": float(stats.spearmanr(values, labels).statistic),
    }


def _multi_label(guesses: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Metrics of guesses and labels, bool [N,C]."""
    counts = [_f1_counts(guesses[:, c], labels[:, c]) for c in range(labels.shape[1])]
    return {
        "accuracy": float((guesses == labels).all(1).mean()),
        "f1": _f1(*np.sum(counts, axis=0)),
        "f1_macro": _mean_f1(counts),
    }


def _single_label(table: np.ndarray) -> dict[str, float]:
    """Metrics of a confusion matrix [C,C]."""
    counts = [(table[c, c], table[:, c].sum(), table[c].sum()) for c in range(len(table))]
    metrics = {"accuracy": float(table.trace() / table.sum())}
    if len(table) == 2:
        metrics["f1"] = _f1(*counts[1])
    return metrics | {"f1_macro": _mean_f1(counts), "matthews": matthews(table)}


def confusion(guesses: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """int [N], int [N] -> int [C,C]: the texts of a class (row) that were guessed to be of a class (column)."""
    table = np.zeros((classes, classes), np.int64)
    np.add.at(table, (labels, guesses), 1)
    return table


def matthews(table: np.ndarray) -> float:
    """Correlation of guesses and labels in a confusion matrix: 0 by chance, 1 at best (Gorodkin 2004, eq. 8)."""
    total, right = table.sum(), table.trace()
    labelled, guessed = table.sum(1), table.sum(0)
    variances = float(total**2 - labelled @ labelled) * float(total**2 - guessed @ guessed)
    return float((right * total - labelled @ guessed) / variances**0.5) if variances else 0.0


def nearest_mean(features: np.ndarray, labels: np.ndarray, new_features: np.ndarray, new_labels: np.ndarray) -> float:
    """Accuracy on new rows of the class whose mean over rows is the nearest; features [N,D] and [M,D] are of the first
    N and M of the labels."""
    labels = labels[: len(features)]
    present = np.unique(labels)
    centres = np.stack([features[labels == label].mean(0) for label in present])
    distances = np.stack([np.square(new_features - centre).sum(1) for centre in centres], axis=1)
    return float((present[distances.argmin(1)] == new_labels[: len(new_features)]).mean())


def _f1_counts(guesses: np.ndarray, labels: np.ndarray) -> tuple[int, int, int]:
    """Right guesses, guesses, labels."""
    return int((guesses & labels).sum()), int(guesses.sum()), int(labels.sum())


def _f1(right: int, guessed: int, labelled: int) -> float:
    return float(2 * right / max(guessed + labelled, 1))


def _mean_f1(counts) -> float:
    return float(np.mean([_f1(right, guessed, labelled) for right, guessed, labelled in counts]))
