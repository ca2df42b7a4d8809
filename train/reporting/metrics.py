"""How good classifications are, from the logits and labels of every text; and translations, beside their references."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def scores(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """logits [n,C] and labels: int [n] classes, float [n,C] ones and zeros, or float [n] values -> the metrics that fit.

    One class each: accuracy, F1 of the last class where there are two, macro F1, Matthews' correlation. Several: share of texts with all
    classes right, F1 over all decisions, macro F1. Values: Pearson's and Spearman's correlation.
    """
    if labels.ndim == 2:
        guesses = logits > 0
        counts = [_f1_counts(guesses[:, c], labels[:, c] > 0) for c in range(labels.shape[1])]
        whole = np.sum(counts, axis=0)
        return {
            "accuracy": float((guesses == (labels > 0)).all(1).mean()),
            "f1": _f1(*whole),
            "f1_macro": _mean_f1(counts),
        }
    if np.issubdtype(labels.dtype, np.integer):
        table = confusion(logits.argmax(1), labels, logits.shape[1])
        counts = [(table[c, c], table[:, c].sum(), table[c].sum()) for c in range(len(table))]
        binary = {"f1": _f1(*counts[1])} if len(table) == 2 else {}
        return {
            "accuracy": float(table.trace() / table.sum()),
            **binary,
            "f1_macro": _mean_f1(counts),
            "matthews": matthews(table),
        }
    from scipy import stats

    if np.ptp(labels) == 0 or np.ptp(logits[:, 0]) == 0 or len(labels) < 2:
        return {"pearson": 0.0, "spearman": 0.0}
    found = stats.pearsonr(logits[:, 0], labels), stats.spearmanr(logits[:, 0], labels)
    return {"pearson": float(found[0].statistic), "spearman": float(found[1].statistic)}


def confusion(guesses: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """int [C,C]: how many texts of the class of the row were taken for that of the column."""
    table = np.zeros((classes, classes), np.int64)
    np.add.at(table, (labels, guesses), 1)
    return table


def matthews(table: np.ndarray) -> float:
    """Correlation between guesses and labels of a confusion matrix, 0 by chance and 1 at best (Gorodkin 2004, eq. 8)."""
    total, right = table.sum(), table.trace()
    truth, guessed = table.sum(1), table.sum(0)
    spread = float(total**2 - truth @ truth) * float(total**2 - guessed @ guessed)
    return float((right * total - truth @ guessed) / spread**0.5) if spread else 0.0


def _f1_counts(guesses: np.ndarray, labels: np.ndarray) -> tuple[int, int, int]:
    """Right guesses, guesses, labels."""
    return int((guesses & labels).sum()), int(guesses.sum()), int(labels.sum())


def _f1(right: int, guessed: int, labelled: int) -> float:
    return float(2 * right / max(guessed + labelled, 1))


def _mean_f1(counts) -> float:
    return float(np.mean([_f1(*each) for each in counts]))


def translations(found: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """sacreBLEU and chrF of translations, 0 to 100, with the signatures that say how they were computed (Post 2018)."""
    import sacrebleu

    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    measured = {
        "bleu": bleu.corpus_score(found, [references]).score,
        "chrf": chrf.corpus_score(found, [references]).score,
    }
    return measured | {"signature": f"BLEU|{bleu.get_signature()} chrF|{chrf.get_signature()}"}


def resampled(found: Sequence[str], references: Sequence[str], against: Sequence[str] | None = None) -> dict[str, Any]:
    """95 % intervals of BLEU and chrF over 1,000 draws of the sentences (Koehn 2004).

    With other translations `against` the first ones, also their metrics, and how often, were both alike, chance would make as large a
    difference on the same draws: `p`.
    """
    import sacrebleu
    from sacrebleu import significance

    metrics = {"BLEU": sacrebleu.BLEU(references=[references]), "chrF2": sacrebleu.CHRF(references=[references])}
    systems: list[Any] = [("against", list(against or found)), ("found", list(found))]
    results: Any = significance.PairedTest(systems, metrics, references=None, test_type="bs", n_samples=1000)()[1]
    measured: dict[str, Any] = {}
    for metric, (other, ours) in (("bleu", results["BLEU"]), ("chrf", results["chrF2"])):
        measured[f"{metric}_interval"] = [float(ours.mean - ours.ci), float(ours.mean + ours.ci)]
        if against is not None:
            measured |= {f"{metric}_against": float(other.score), f"{metric}_p": float(ours.p_value)}
    return measured
