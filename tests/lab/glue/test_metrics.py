"""The official metrics against counts written from their rules, scipy and scikit-learn."""

import math
import re
import string

import numpy as np
import pytest

from train.lab.glue import answers, metrics
from train.lab.glue.suites import GLUE, SUPERGLUE

TASKS = {f"{suite}/{task.name}": task for suite, tasks in (("g", GLUE), ("s", SUPERGLUE)) for task in tasks}


def random_classes(seed, classes, n=60):
    rng = np.random.default_rng(seed)
    golds = {key: classes[i] for key, i in enumerate(rng.integers(len(classes), size=n))}
    guesses = {key: golds[key] if rng.random() < 0.6 else classes[rng.integers(len(classes))] for key in golds}
    return golds, guesses


def counted(golds, guesses, positive):
    """True and false positives and negatives."""
    pairs = [(golds[key] == positive, guesses.get(key) == positive) for key in golds]
    return [sum(pair == case for pair in pairs) for case in ((1, 1), (0, 1), (1, 0), (0, 0))]


@pytest.mark.parametrize("seed", range(5))
def test_classes(seed):
    golds, guesses = random_classes(seed, ("0", "1"))
    tp, fp, fn, tn = counted(golds, guesses, "1")
    assert metrics.accuracy(golds, guesses) == pytest.approx((tp + tn) / 60)
    assert metrics.f1(golds, guesses, ("0", "1")) == pytest.approx(tp / (tp + (fp + fn) / 2))
    expected = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert metrics.matthews(golds, guesses) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1(seed):
    """CB: the mean over classes, whatever their frequency."""
    golds, guesses = random_classes(seed, ("entailment", "neutral", "contradiction"))
    values = []
    for name in set(golds.values()) | set(guesses.values()):
        tp, fp, fn, _ = counted(golds, guesses, name)
        values.append(tp / (tp + (fp + fn) / 2))
    assert metrics.f1_macro(golds, guesses) == pytest.approx(sum(values) / len(values))


def test_macro_f1_of_a_class_that_nobody_names():
    assert metrics.f1_macro({0: "a", 1: "a"}, {0: "a", 1: "a"}) == 1
    assert metrics.f1_macro({0: "a", 1: "a"}, {0: "a", 1: "b"}) == pytest.approx((2 / 3 + 0) / 2)


def test_correlations():
    from scipy import stats

    rng = np.random.default_rng(0)
    values = rng.normal(size=40)
    golds = {i: float(round(value, 1)) for i, value in enumerate(values)}  # with ties
    guesses = {i: float(value + rng.normal()) for i, value in reversed(list(enumerate(values)))}
    sides = [golds[i] for i in range(40)], [guesses[i] for i in range(40)]
    assert metrics.pearson(golds, guesses) == pytest.approx(stats.pearsonr(*sides)[0])
    assert metrics.spearman(golds, guesses) == pytest.approx(stats.spearmanr(*sides)[0])
    assert metrics.pearson(golds, dict.fromkeys(golds, 1.0)) == 0


@pytest.mark.parametrize("seed", range(5))
def test_multirc(seed):
    """F1 over all answers, and questions of which all are right; the ids of answers begin anew in every passage."""
    rng = np.random.default_rng(seed)
    golds = {(p, q, a): int(rng.integers(2)) for p in range(3) for q in range(4) for a in range(rng.integers(1, 5))}
    guesses = {key: label if rng.random() < 0.8 else 1 - label for key, label in golds.items()}
    tp, fp, fn, _ = counted(golds, guesses, 1)
    assert metrics.f1a(golds, guesses) == pytest.approx(2 * tp / (2 * tp + fp + fn))
    right = [all(guesses[key] == golds[key] for key in golds if key[:2] == (p, q)) for p in range(3) for q in range(4)]
    assert metrics.exact_match(golds, guesses) == sum(right) / 12


def squad_f1(guess, right):
    """Written from the rules: lower case, no punctuation, no articles; overlap of words with their counts."""

    def words(text):
        text = "".join(c for c in text.lower() if c not in string.punctuation)
        return [word for word in re.split(r"\s+", text) if word and word not in ("a", "an", "the")]

    guess, right = words(guess), words(right)
    shared = sum(min(guess.count(word), right.count(word)) for word in set(guess))
    return (2 * shared / (len(guess) + len(right)) if shared else 0.0), guess == right


def test_record():
    """The best of the right entities; a query without an answer scores 0."""
    golds = {
        1: ["Tina Fey", "The U.S."],
        2: ["Barack Obama", "Obama"],
        3: ["New York"],
        4: ["a b"],
    }
    guesses = {1: "US", 2: "President Obama", 3: "York  New york."}
    f1 = [max(squad_f1(guesses[key], right)[0] for right in golds[key]) for key in guesses]
    exact = [max(squad_f1(guesses[key], right)[1] for right in golds[key]) for key in guesses]
    assert exact == [True, False, False]
    assert f1 == pytest.approx([1, 2 / 3, 4 / 5])
    assert metrics.f1_answer(golds, guesses) == pytest.approx(sum(f1) / 4)
    assert metrics.exact_match_answer(golds, guesses) == 1 / 4
    assert metrics.exact_match_answer({1: []}, {1: "a"}) == 0


@pytest.mark.parametrize("name", metrics.METRICS)
def test_what_is_not_answered_is_wrong(name):
    golds = {
        "f1a": {(0, 0, 0): 1, (0, 0, 1): 0},
        "exact_match": {(0, 0, 0): 1, (0, 0, 1): 0},
        "f1_answer": {0: ["a man"], 1: ["b"]},
        "exact_match_answer": {0: ["a man"], 1: ["b"]},
        "pearson": {0: 1.0, 1: 2.0},
        "spearman": {0: 1.0, 1: 2.0},
    }.get(name, {0: "0", 1: "1"})
    assert metrics.METRICS[name](golds, {}, ("0", "1")) <= 0


def test_scores_are_means_of_means():
    """Of metrics first, then of the parts that count."""
    mnli = {"MNLI-m": {"accuracy": 0.8}, "MNLI-mm": {"accuracy": 0.6}, "AX": {"matthews": 0.1}}
    assert metrics.score(TASKS["g/MNLI"], mnli) == pytest.approx(0.7)
    assert metrics.score(TASKS["g/MRPC"], {"MRPC": {"accuracy": 0.8, "f1": 0.9}}) == pytest.approx(0.85)


# From rows to answers


def test_choices_and_entities_are_the_most_probable():
    rows = [{"idx": [q, c]} for q in (4, 5) for c in (0, 1)]
    chances = [{"label": "0", "probabilities": {"0": 1 - p, "1": p}} for p in (0.1, 0.2, 0.9, 0.3)]
    assert answers.predicted(TASKS["s/COPA"], rows, chances) == {4: 1, 5: 0}
    labelled = [row | {"label": label} for row, label in zip(rows, "0110", strict=True)]
    assert answers.gold(TASKS["s/COPA"], labelled) == {4: 1, 5: 0}
    rows = [{"idx": 7, "entity": name, "answers": ["B", "C"]} for name in "ABC"] + [
        {"idx": 8, "entity": "D", "answers": ["D"]}
    ]
    assert answers.predicted(TASKS["s/ReCoRD"], rows, chances) == {7: "C", 8: "D"}
    assert answers.gold(TASKS["s/ReCoRD"], rows) == {7: ["B", "C"], 8: ["D"]}


def test_answers_of_rows():
    rows = [{"idx": [1, 2, a], "label": str(a)} for a in (0, 1)]
    assert answers.gold(TASKS["s/MultiRC"], rows) == {(1, 2, 0): 0, (1, 2, 1): 1}
    assert answers.predicted(TASKS["g/STS-B"], [{"idx": 3}], [{"label": "2.5000"}]) == {3: 2.5}
    assert answers.gold(TASKS["s/BoolQ"], [{"idx": 3, "label": "true"}]) == {3: "true"}


def test_constant_guesses():
    rows = [{"label": label} for label in ("neutral", "entailment", "neutral", "contradiction")]
    guess = answers.constant(TASKS["g/MNLI"], rows)
    assert (guess["label"], guess["probabilities"]["neutral"]) == ("neutral", 0.5)
    assert answers.constant(TASKS["g/STS-B"], [{"label": 1.0}, {"label": 4.0}])["label"] == "2.5"


@pytest.mark.parity
@pytest.mark.parametrize("seed", range(20))
def test_scikit_learn(seed):
    sklearn = pytest.importorskip("sklearn.metrics")
    labels = ("entailment", "neutral", "contradiction")
    golds, guesses = random_classes(seed, labels, n=25)
    sides = list(golds.values()), [guesses[key] for key in golds]
    assert metrics.f1_macro(golds, guesses) == pytest.approx(sklearn.f1_score(*sides, average="macro"))
    assert metrics.matthews(golds, guesses) == pytest.approx(sklearn.matthews_corrcoef(*sides))
    golds, guesses = random_classes(seed, ("0", "1"), n=25)
    sides = list(golds.values()), [guesses[key] for key in golds]
    assert metrics.f1(golds, guesses, ("0", "1")) == pytest.approx(sklearn.f1_score(*sides, pos_label="1"))
    assert metrics.matthews(golds, guesses) == pytest.approx(sklearn.matthews_corrcoef(*sides))
