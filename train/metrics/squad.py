"""Exact match and F1 of answers, as the official evaluators of SQuAD v1.1 and v2.0 count them; shares from 0 to 1.

An answer counts by its words alone: lower-cased, without ASCII punctuation and articles (Rajpurkar et al. 2016,
section 6.1; Rajpurkar et al. 2018, section 5).
"""

import collections
import re
import string
from collections.abc import Iterable, Mapping, Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")

# The acceptable answers of every question, by its id; none of a question without an answer.
Golds = Mapping[str, Sequence[str]]


def normalize(text: str) -> str:
    """The words of an answer that count, joined by single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, gold: str) -> float:
    """1 if both have the same words, else 0."""
    return float(normalize(prediction) == normalize(gold))


def f1(prediction: str, gold: str) -> float:
    """The harmonic mean of precision and recall of the words, each counted as often as it occurs; 0 without words."""
    words, gold_words = normalize(prediction).split(), normalize(gold).split()
    common = (collections.Counter(words) & collections.Counter(gold_words)).total()
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def f1_or_empty(prediction: str, gold: str) -> float:
    """`f1`; of two answers of which one has no words, 1 if the other has none either (v2)."""
    if not normalize(prediction) or not normalize(gold):
        return exact_match(prediction, gold)
    return f1(prediction, gold)


def evaluate_v1(golds: Golds, predictions: Mapping[str, str]) -> dict[str, float]:
    """`exact_match` and `f1`: means over all questions of the best score over the acceptable answers.

    A question without a prediction scores 0. Raises ValueError for a question without an answer.
    """
    if not all(golds.values()):
        raise ValueError("a question of SQuAD v1.1 has an answer; evaluate these with evaluate_v2")
    scores = [
        (_best(exact_match, predictions[name], texts), _best(f1, predictions[name], texts))
        for name, texts in golds.items()
        if name in predictions
    ]
    return {
        "exact_match": sum(exact for exact, _ in scores) / max(len(golds), 1),
        "f1": sum(overlap for _, overlap in scores) / max(len(golds), 1),
    }


def evaluate_v2(
    golds: Golds,
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """`exact_match` and `f1` over the questions with a prediction, and over those of them that have an answer
    (`HasAns_`) and have none (`NoAns_`). The prediction "" says that there is no answer.

    With `no_answer`, which rises with the probability that there is none, a prediction above `threshold` counts as
    "". Then also `best_exact` and `best_f1`: what the best thresholds (`_thresh`) would reach.
    """
    exact, overlap = raw_scores(golds, predictions)
    odds = {name: no_answer[name] if no_answer else 0.0 for name in exact}
    counted = [
        {name: float(not golds[name]) if odds[name] > threshold else score for name, score in scores.items()}
        for scores in (exact, overlap)
    ]
    metrics = {}
    answerable = [name for name in exact if golds[name]]
    unanswerable = [name for name in exact if not golds[name]]
    for prefix, names in (("", list(exact)), ("HasAns_", answerable), ("NoAns_", unanswerable)):
        if names or not prefix:
            metrics[f"{prefix}exact_match"], metrics[f"{prefix}f1"] = (_mean(scores, names) for scores in counted)
    if no_answer is not None:
        for name, scores in (("best_exact", exact), ("best_f1", overlap)):
            metrics[name], metrics[f"{name}_thresh"] = best_threshold(golds, predictions, scores, no_answer)
    return metrics


def raw_scores(golds: Golds, predictions: Mapping[str, str]) -> tuple[dict[str, float], dict[str, float]]:
    """Exact match and F1 of every question with a prediction, the best over its acceptable answers.

    Answers without words are left out; a question without others is answered by "".
    """
    exact, overlap = {}, {}
    for name, texts in golds.items():
        if name in predictions:
            acceptable = [text for text in texts if normalize(text)] or [""]
            exact[name] = _best(exact_match, predictions[name], acceptable)
            overlap[name] = _best(f1_or_empty, predictions[name], acceptable)
    return exact, overlap


def best_threshold(
    golds: Golds, predictions: Mapping[str, str], scores: Mapping[str, float], no_answer: Mapping[str, float]
) -> tuple[float, float]:
    """The best mean score that a threshold of `no_answer` reaches, and the threshold.

    Questions are answered one after the other, the surest first. Among equal values of `no_answer`, a threshold may
    fall between questions, as it does in the official evaluator.
    """
    score = best = float(sum(not texts for texts in golds.values()))
    threshold = 0.0
    for name in sorted(no_answer, key=no_answer.__getitem__):
        if name not in scores:
            continue
        if golds[name]:
            score += scores[name]
        elif predictions[name]:
            score -= 1
        if score > best:
            best, threshold = score, no_answer[name]
    return best / max(len(scores), 1), threshold


def _best(score, prediction: str, texts: Iterable[str]) -> float:
    """The best score of a prediction over texts."""
    return max(score(prediction, text) for text in texts)


def _mean(scores: Mapping[str, float], names: Sequence[str]) -> float:
    return sum(scores[name] for name in names) / max(len(names), 1)
