"""The official metrics of GLUE and SuperGLUE: from right and predicted answers by key to a number, 1 at best.

A key that is not answered counts as wrong. Averages: of the metrics of a task, then of the tasks (Wang et al. 2018,
section 3; Wang et al. 2019, section 4).
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from train.lab.glue.glue_rows import Answer, Key
from train.lab.glue.suites import GluePart, GlueTask
from train.metrics import scores, squad

Answers = Mapping[Key, Answer]


def measure(task: GlueTask, part: GluePart, golds: Answers, answers: Answers) -> dict[str, float]:
    """The metrics of a part by name."""
    return {name: METRICS[name](golds, answers, task.labels) for name in part.metrics}


def score(task: GlueTask, metrics: Mapping[str, Mapping[str, float]]) -> float:
    """Metrics by part -> the mean of the metrics of a part, then of the parts that count."""
    counted = [metrics[part.name].values() for part in task.parts if part.counts]
    return float(np.mean([np.mean(list(values)) for values in counted]))


def accuracy(golds: Answers, answers: Answers, labels: Sequence[str] = ()) -> float:
    """The share of keys with the right answer."""
    return float(np.mean([answers.get(key) == answer for key, answer in golds.items()]))


def _table(golds: Answers, answers: Answers) -> tuple[np.ndarray, list[str]]:
    """The confusion matrix of the classes that occur, and their names."""
    guesses = [str(answers.get(key)) for key in golds]
    truths = [str(answer) for answer in golds.values()]
    names = sorted({*guesses, *truths})
    index = {name: i for i, name in enumerate(names)}
    guessed, labelled = (np.array([index[name] for name in side]) for side in (guesses, truths))
    return scores.confusion(guessed, labelled, len(names)), names


def _f1(right: float, guessed: float, labelled: float) -> float:
    return 2 * right / (guessed + labelled) if right else 0.0


def _class_f1(table: np.ndarray, c: int) -> float:
    return _f1(table[c, c], table[:, c].sum(), table[c].sum())


def f1(golds: Answers, answers: Answers, labels: Sequence[str]) -> float:
    """F1 of the last class, the positive one of two."""
    table, names = _table(golds, answers)
    return float(_class_f1(table, names.index(labels[-1]))) if labels[-1] in names else 0.0


def f1_macro(golds: Answers, answers: Answers, labels: Sequence[str] = ()) -> float:
    """The mean of F1 over the classes that occur in labels or answers."""
    table, names = _table(golds, answers)
    return float(np.mean([_class_f1(table, c) for c in range(len(names))]))


def matthews(golds: Answers, answers: Answers, labels: Sequence[str] = ()) -> float:
    """Matthews' correlation, for any number of classes (`train.metrics.scores.matthews`)."""
    return scores.matthews(_table(golds, answers)[0])


def pearson(golds: Answers, answers: Answers, labels: Sequence[str] = ()) -> float:
    """Pearson's correlation; 0 where all answers are equal."""
    return _correlations(golds, answers)["pearson"]


def spearman(golds: Answers, answers: Answers, labels: Sequence[str] = ()) -> float:
    """Spearman's correlation; 0 where all answers are equal."""
    return _correlations(golds, answers)["spearman"]


def _correlations(golds: Answers, answers: Answers) -> dict[str, float]:
    values = np.array([[answers.get(key, 0.0)] for key in golds], np.float64)
    return scores.classification_metrics(values, np.array(list(golds.values()), np.float64))


def f1a(golds: Answers, answers: Answers, labels: Sequence[str] = ()) -> float:
    """F1 over all answers of all questions (MultiRC; Khashabi et al. 2018, section 4)."""
    right = sum(answers.get(key) == 1 for key, answer in golds.items() if answer == 1)
    return float(_f1(right, sum(answers.get(key) == 1 for key in golds), sum(answer == 1 for answer in golds.values())))


def exact_match(golds: Answers, answers: Answers, labels: Sequence[str] = ()) -> float:
    """The share of questions of which every answer is judged right (MultiRC)."""
    right: dict[Key, bool] = {}
    for key, answer in golds.items():
        assert isinstance(key, tuple)
        question = key[:2]
        right[question] = right.get(question, True) and answers.get(key) == answer
    return float(np.mean(list(right.values())))


def f1_answer(golds: Answers, answers: Answers, labels: Sequence[str] = ()) -> float:
    """The mean over queries of the best F1 of words over their right entities (ReCoRD; Zhang et al. 2018)."""
    return _best_of_golds(golds, answers, squad.f1)


def exact_match_answer(golds: Answers, answers: Answers, labels: Sequence[str] = ()) -> float:
    """The share of queries whose answer is one of the right entities, but for case, punctuation and articles."""
    return _best_of_golds(golds, answers, squad.exact_match)


def _best_of_golds(golds: Answers, answers: Answers, similarity: Callable[[str, str], float]) -> float:
    def best(key: Key, rights: Answer) -> float:
        return max((similarity(str(answers[key]), right) for right in _entities(rights)), default=0.0)

    return float(np.mean([best(key, rights) if key in answers else 0.0 for key, rights in golds.items()]))


def _entities(answer: Answer) -> list[str]:
    """The entities that are right."""
    assert isinstance(answer, list)
    return answer


METRICS: Mapping[str, Callable[[Answers, Answers, Sequence[str]], float]] = {
    function.__name__: function
    for function in (
        accuracy,
        f1,
        f1_macro,
        matthews,
        pearson,
        spearman,
        f1a,
        exact_match,
        f1_answer,
        exact_match_answer,
    )
}
