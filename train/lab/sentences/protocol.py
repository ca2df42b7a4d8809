"""How SentEval measures vectors of sentences: classifiers with folds, classifiers of relatedness, cosines.

A function takes the vectors of the parts of a task, the rows, and the settings. It returns metrics by name, each with
a 95 % interval; shares and correlations are in hundredths.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from train.lab.sentences import intervals, relatedness, retrieval
from train.lab.sentences.exact import ExactTrainer
from train.lab.sentences.fits import Fit, Fitted, MinibatchTrainer
from train.lab.sentences.intervals import Metric
from train.lab.sentences.randomness import held_out, stratified_folds
from train.lab.sentences.rows import Dataset
from train.lab.sentences.settings import Settings

# The share of the rows that a last training holds out to stop by, and the seed of folds.
_HELD_OUT, _FOLDS_SEED = 0.05, 1111

# Strengths of the penalty of torch's path, and C of scikit-learn's.
_PENALTIES = tuple(10.0**power for power in range(-5, -1))
_INVERSE = {"folds": tuple(2.0**power for power in range(-1, 6)), "": tuple(2.0**power for power in range(-2, 4))}


class Vectors(NamedTuple):
    """The vectors of a part, float32 [N,D], and of the second sentences of its pairs."""

    texts: np.ndarray
    pairs: np.ndarray | None = None

    def features(self, kind: str) -> np.ndarray:
        """What a classifier reads: of pairs |u-v|, u*v; of SNLI u, v, u*v, |u-v|; of single sentences their vectors."""
        if self.pairs is None:
            return self.texts
        difference, product = np.abs(self.texts - self.pairs), self.texts * self.pairs
        return np.concatenate(
            [difference, product] if kind == "difference" else [self.texts, self.pairs, product, difference], axis=1
        )


class Work(NamedTuple):
    """A task to be measured: vectors of its parts, rows, the kind of its features; `advance` hears of progress."""

    name: str
    vectors: Mapping[str, Vectors]
    data: Dataset
    features: str
    settings: Settings
    advance: Callable[[int], None]


Metrics = dict[str, Metric]


def inner_folds(work: Work) -> Metrics:
    """Folds in folds: the strength of every fold is chosen on inner folds of its other rows. The mean over folds."""
    rows, settings = work.data.parts["all"], work.settings
    x, y = work.vectors["all"].features(work.features), rows.labels
    outer = stratified_folds(y, settings.kfold, _FOLDS_SEED, work.name)
    fits: list[Fit] = []
    nothing = np.zeros(0, np.int64)
    for fold in range(settings.kfold):
        train, test = np.flatnonzero(outer != fold), np.flatnonzero(outer == fold)
        inner = stratified_folds(y[train], settings.kfold, _FOLDS_SEED, work.name)
        fits += [Fit(train[inner != k], train[inner == k], nothing) for k in range(settings.kfold)]
        fits.append(_last_fit(train, test, settings))
    fitted = _train(work, x, y, fits, "")
    right, accuracies, chosen = [], [], []
    for fold in range(settings.kfold):
        *inner_fits, last = fitted[fold * (settings.kfold + 1) : (fold + 1) * (settings.kfold + 1)]
        scores = _mean_scores(inner_fits)
        is_right = last.predictions[scores.argmax()] == y[outer == fold]
        right.append(is_right)
        accuracies.append(round(100 * is_right.mean(), 2))
        chosen.append(scores.max())
    accuracy = intervals.share(np.concatenate(right))._replace(value=float(np.mean(accuracies)))
    return {"accuracy": accuracy, "dev_accuracy": Metric(float(np.mean(chosen)))}


def folds(work: Work) -> Metrics:
    """Folds of the training rows choose the strength; a last training on all of them is tested. Two classes have F1."""
    settings = work.settings
    x, y, (train, test) = _joined(work, ("train", "test"))
    fold_of = stratified_folds(y[train], settings.kfold, settings.seed, work.name)
    nothing = np.zeros(0, np.int64)
    fits = [Fit(train[fold_of != k], train[fold_of == k], nothing) for k in range(settings.kfold)]
    fitted = _train(work, x, y, [*fits, _last_fit(train, test, settings)], "folds")
    scores = _mean_scores(fitted[:-1])
    return _tested(work, fitted[-1].predictions[scores.argmax()], y[test], float(scores.max()))


def split(work: Work) -> Metrics:
    """Development rows choose the strength, and when training stops."""
    return _split(work, work.settings, None)


def split_without_penalty(work: Work) -> Metrics:
    """`split` for SNLI: hardly any penalty, a look after every epoch, and 15 epochs."""
    return _split(
        work,
        dataclasses.replace(work.settings, epoch_size=1, max_epoch=15),
        (1e-9,) if work.settings.solver == "minibatch" else (1e9,),
    )


def _split(work: Work, settings: Settings, strengths: Sequence[float] | None) -> Metrics:
    x, y, (train, dev, test) = _joined(work, ("train", "dev", "test"))
    (fitted,) = _train(work._replace(settings=settings), x, y, [Fit(train, dev, test)], "", strengths)
    scores = np.round(100 * fitted.dev, 2)
    return _tested(work, fitted.predictions[scores.argmax()], y[test], float(scores.max()))


def related(work: Work) -> Metrics:
    """A classifier of five scores on pairs; its expected score against the gold one. And the cosine, untrained."""
    parts = {
        name: relatedness.ScoredPairs(work.vectors[name].features(work.features), rows.labels)
        for name, rows in work.data.parts.items()
    }
    guesses, dev = relatedness.fit(parts, work.settings.seed)
    golds = parts["test"].scores
    metrics = {"pearson": intervals.correlation(guesses, golds, "pearson")}
    metrics["spearman"] = intervals.correlation(guesses, golds, "spearman")
    metrics["mse"] = Metric(float(np.mean(np.square(guesses - golds))))
    cosines = {name: _cosines(work.vectors[name]) for name in parts}
    metrics["cosine_spearman"] = intervals.correlation(cosines["test"], golds, "spearman")
    dev_cosine = intervals.correlation(cosines["dev"], parts["dev"].scores, "spearman")
    return metrics | {"dev_pearson": Metric(100 * dev), "dev_cosine_spearman": dev_cosine}


def similarity(work: Work) -> Metrics:
    """The cosine of pairs against their scores: means over sources, weighted by pairs or not, and all pairs at once."""
    golds = {name: rows.labels for name, rows in work.data.parts.items()}
    cosines = {name: _cosines(vectors) for name, vectors in work.vectors.items()}
    weights = np.array([len(scores) for scores in golds.values()])
    metrics: Metrics = {}
    for kind in ("pearson", "spearman"):
        by_source = {name: intervals.correlation(cosines[name], golds[name], kind) for name in golds}
        metrics[kind] = intervals.mean(list(by_source.values()), weights)
        metrics[f"{kind}_unweighted"] = intervals.mean(list(by_source.values()), np.ones(len(weights)))
        joined, all_golds = (np.concatenate(list(values.values())) for values in (cosines, golds))
        metrics[f"{kind}_all"] = intervals.correlation(joined, all_golds, kind)
        metrics |= {f"{name}_{kind}": metric for name, metric in by_source.items()}
    return metrics


def captions(work: Work) -> Metrics:
    """Captions and images in one space: recall of each by the other (`train.lab.sentences.retrieval`)."""
    images = {name: rows.images for name, rows in work.data.parts.items() if rows.images is not None}
    return retrieval.measure(
        {name: (work.vectors[name].texts, features) for name, features in images.items()}, work.settings.seed
    )


def majority(data: Dataset) -> float:
    """The accuracy of the most frequent class, in hundredths; 0 of tasks without classes."""
    rows = data.parts.get("test", data.parts.get("all"))
    train = data.parts.get("train", rows)
    if not data.classes or rows is None or train is None:
        return 0.0
    return float(100 * np.mean(rows.labels == np.bincount(train.labels).argmax()))


def _last_fit(train: np.ndarray, test: np.ndarray, settings: Settings) -> Fit:
    """The training of which a share of the rows is held out to stop by."""
    if settings.solver == "exact":
        return Fit(train, np.zeros(0, np.int64), test)
    rows, dev = held_out(train, _HELD_OUT, settings.seed)
    return Fit(rows, dev, test, skipped=len(train))


def _train(
    work: Work, x: np.ndarray, y: np.ndarray, fits: list[Fit], kind: str, strengths: Sequence[float] | None = None
) -> list[Fitted]:
    """The outcomes of all fits."""
    is_exact = work.settings.solver == "exact"
    strengths = strengths or (_INVERSE[kind] if is_exact else _PENALTIES)
    make = ExactTrainer if is_exact else MinibatchTrainer
    return make(x, y, work.data.classes, strengths, work.settings).run(fits, work.advance)


def _mean_scores(fitted: Sequence[Fitted]) -> np.ndarray:
    """The mean accuracies of strengths over folds, in hundredths and rounded as SentEval does before it chooses."""
    return np.round(100 * np.mean([outcome.dev for outcome in fitted], axis=0), 2)


def _joined(work: Work, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """The features and labels of some parts, joined, and the rows of each part."""
    x = np.concatenate([work.vectors[name].features(work.features) for name in names])
    y = np.concatenate([work.data.parts[name].labels for name in names])
    ends = np.cumsum([0, *(len(work.data.parts[name].labels) for name in names)])
    return x, y, [np.arange(start, end) for start, end in itertools.pairwise(ends)]


def _tested(work: Work, guesses: np.ndarray, golds: np.ndarray, dev: float) -> Metrics:
    """Accuracy on test rows, F1 of class 1 of pairs in two classes, and the accuracy on development rows."""
    metrics = {"accuracy": intervals.share(guesses == golds)}
    if work.data.classes == 2 and work.data.parts["train"].pairs is not None:
        metrics["f1"] = intervals.f1(guesses == 1, golds == 1)
    return metrics | {"dev_accuracy": Metric(dev)}


def _cosines(vectors: Vectors) -> np.ndarray:
    """The cosines of pairs, float64 [N]; 0 where a vector is 0."""
    assert vectors.pairs is not None
    u, v = vectors.texts.astype(np.float64), vectors.pairs.astype(np.float64)
    lengths = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    return (u * v).sum(1) / np.where(lengths > 0, lengths, 1)


PROTOCOLS: Mapping[str, Callable[[Work], Metrics]] = {
    "inner_folds": inner_folds,
    "folds": folds,
    "split": split,
    "split_without_penalty": split_without_penalty,
    "relatedness": related,
    "similarity": similarity,
    "retrieval": captions,
}
