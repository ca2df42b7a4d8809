"""Protocols of tasks: what is chosen, trained and tested on which rows; intervals; relatedness; retrieval."""

import numpy as np
import pytest
from scipy import stats

from train import UserError
from train.lab.sentences import evaluate, intervals, protocol, relatedness, retrieval
from train.lab.sentences.evaluation import LoadedTask
from train.lab.sentences.fits import Fitted
from train.lab.sentences.rows import Dataset, SentenceRows
from train.lab.sentences.settings import Settings
from train.lab.sentences.suite import TASKS

BY_NAME = {task.name: task for task in TASKS}
FAST = Settings(kfold=3, optim="rmsprop", tenacity=1, epoch_size=1, max_epoch=6)


def rows(count, classes=2, paired=False, seed=0):
    """Sentences of which the first word says the class, nearly always."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    texts = [f"{'abcdef'[label if rng.random() < 0.9 else 0]} w{n}" for n, label in enumerate(labels)]
    pairs = [f"x w{n % 5}" for n in range(count)] if paired else None
    return SentenceRows(texts, labels, pairs)


def encode(texts):
    """The letter of a text, and noise that depends on the text."""
    noise = [np.random.default_rng(sum(map(ord, text))).normal(size=3) * 0.3 for text in texts]
    return np.array(
        [[*(text[0] == letter for letter in "abcdef"), *extra] for text, extra in zip(texts, noise, strict=True)]
    )


class Spy:
    """Stands for a trainer: keeps what it is asked to fit, and answers what a test wants."""

    def __init__(self, answer):
        self.answer = answer

    def __call__(self, x, y, classes, strengths, settings):
        self.x, self.y, self.strengths = x, y, strengths
        return self

    def run(self, fits, advance):
        self.fits = fits
        return [self.answer(index, fit) for index, fit in enumerate(fits)]


def work(name, data, settings=FAST):
    vectors = {
        part: protocol.Vectors(encode(rows.texts), None if rows.pairs is None else encode(rows.pairs))
        for part, rows in data.parts.items()
    }
    return protocol.Work(name, vectors, data, BY_NAME[name].features, settings, lambda fits: None)


def test_inner_folds(monkeypatch):
    """Inner folds have rows of their outer fold's training alone; the strength that they choose is tested."""
    data = Dataset({"all": rows(60)}, 2)
    labels = data.parts["all"].labels

    def answer(index, fit):
        best = index // 4  # of three outer folds, which have three inner ones and a last fit
        dev = np.array([0.1, 0.2, 0.3, 0.4]) if best == 0 else np.array([0.5, 0.5, 0.1, 0.2])
        predictions = (
            np.stack([1 - labels[fit.test]] * 3 + [labels[fit.test]]) if best == 0 else np.stack([labels[fit.test]] * 4)
        )
        return Fitted(dev, predictions)

    spy = Spy(answer)
    monkeypatch.setattr(protocol, "MinibatchTrainer", spy)
    metrics = protocol.inner_folds(work("MR", data))
    assert spy.strengths == (1e-5, 1e-4, 1e-3, 1e-2)
    assert len(spy.fits) == 12
    tested = np.concatenate([spy.fits[index].test for index in (3, 7, 11)])
    assert sorted(tested) == list(range(60))
    for fold in range(3):
        *inner, last = spy.fits[4 * fold : 4 * fold + 4]
        outside = set(range(60)) - set(last.test)
        assert all(set(fit.train) | set(fit.dev) == outside and not set(fit.train) & set(fit.dev) for fit in inner)
        assert sorted(np.concatenate([fit.dev for fit in inner])) == sorted(outside)
        assert set(last.train) | set(last.dev) == outside
        assert (len(last.dev), last.skipped) == (int(0.05 * len(outside)), len(outside))
    assert metrics["accuracy"].value == 100
    assert metrics["dev_accuracy"].value == pytest.approx((40 + 50 + 50) / 3)


def test_folds(monkeypatch):
    """Folds of the training rows choose; the first of equal strengths wins; F1 of pairs in two classes."""
    data = Dataset({"train": rows(45, paired=True), "test": rows(20, paired=True, seed=1)}, 2)
    labels = data.parts["test"].labels

    def answer(index, fit):
        wrong = labels.copy()
        wrong[:5] = 1 - wrong[:5]
        return Fitted(np.array([0.2, 0.7, 0.7, 0.1]), np.stack([labels, wrong, labels, labels])[:, : len(fit.test)])

    spy = Spy(answer)
    monkeypatch.setattr(protocol, "MinibatchTrainer", spy)
    metrics = protocol.folds(work("MRPC", data))
    assert metrics["accuracy"].value == 75
    assert metrics["dev_accuracy"].value == 70
    wrong = labels.copy()
    wrong[:5] = 1 - wrong[:5]
    assert metrics["f1"].value == pytest.approx(200 * (wrong & labels).sum() / (wrong.sum() + labels.sum()))
    u, v = encode(data.parts["train"].texts), encode(data.parts["train"].pairs)
    np.testing.assert_allclose(spy.x[:45], np.concatenate([abs(u - v), u * v], axis=1))
    assert [len(fit.dev) for fit in spy.fits] == [15, 15, 15, 2]


def test_snli_has_other_features_and_limits(monkeypatch):
    data = Dataset({name: rows(30, 3, True, seed) for seed, name in enumerate(("train", "dev", "test"))}, 3)
    spy = Spy(lambda index, fit: Fitted(np.array([0.5]), fit.test[None] * 0))
    monkeypatch.setattr(protocol, "MinibatchTrainer", spy)
    protocol.split_without_penalty(work("SNLI", data))
    u, v = encode(data.parts["train"].texts), encode(data.parts["train"].pairs)
    np.testing.assert_allclose(spy.x[:30], np.concatenate([u, v, u * v, abs(u - v)], axis=1))
    assert spy.strengths == (1e-9,)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["minibatch", pytest.param("exact", marks=pytest.mark.slow)])
def test_classifiers_learn(solver):
    """Every protocol of classes, by both solvers, on vectors that nearly say the class."""
    settings = Settings(solver=solver, kfold=3, optim="rmsprop", tenacity=1, epoch_size=2, max_epoch=20)
    data = {
        "MR": Dataset({"all": rows(120)}, 2),
        "TREC": Dataset({"train": rows(120, 6), "test": rows(60, 6, seed=1)}, 6),
        "SICK-E": Dataset({name: rows(90, 3, True, seed) for seed, name in enumerate(("train", "dev", "test"))}, 3),
    }
    results = evaluate(encode, [LoadedTask(BY_NAME[name], part) for name, part in data.items()], settings)
    for name, result in results.items():
        accuracy = result["metrics"]["accuracy"]
        assert accuracy["value"] > 75 > result["constant"] + 10, name
        assert accuracy["low"] < accuracy["value"] < accuracy["high"]
        assert result["size"] == 9


def test_similarity():
    """Weighted and plain means over sources, and all pairs at once."""
    rng = np.random.default_rng(0)
    names = ("FNWN", "headlines", "OnWN")
    parts = {
        name: SentenceRows(
            [f"{letter} {n}" for letter, n in zip(rng.choice([*"abc"], size), range(size), strict=True)],
            rng.uniform(0, 5, size),
            [f"b p{n}" for n in range(size)],
        )
        for name, size in zip(names, (10, 30, 20), strict=True)
    }
    metrics = evaluate(encode, [LoadedTask(BY_NAME["STS13"], Dataset(parts, 0))])["STS13"]["metrics"]
    cosines = {
        name: [
            np.dot(u, v) / np.linalg.norm(u) / np.linalg.norm(v)
            for u, v in zip(encode(part.texts), encode(part.pairs), strict=True)
        ]
        for name, part in parts.items()
    }
    spearman = [100 * stats.spearmanr(cosines[name], parts[name].labels)[0] for name in names]
    assert metrics["spearman"]["value"] == pytest.approx(np.average(spearman, weights=[10, 30, 20]), abs=1e-4)
    assert metrics["spearman_unweighted"]["value"] == pytest.approx(np.mean(spearman), abs=1e-4)
    joined = stats.pearsonr(
        np.concatenate(list(cosines.values())), np.concatenate([part.labels for part in parts.values()])
    )[0]
    assert metrics["pearson_all"]["value"] == pytest.approx(100 * joined, abs=1e-4)
    assert next(iter(metrics)) == "pearson"


def test_targets_of_relatedness():
    """Tai et al. 2015: a score lies on the two whole ones around it, and its mean is the score."""
    scores = np.array([1.0, 3.6, 5.0, 4.999])
    targets = relatedness.targets(scores)
    np.testing.assert_allclose(targets[1], [0, 0, 0.4, 0.6, 0], atol=1e-6)
    np.testing.assert_allclose(targets @ np.arange(1, 6), scores, atol=1e-6)
    assert relatedness.targets(np.array([0.5]))[0].tolist() == [0.5, 0, 0, 0, 0], "as SentEval does"


@pytest.mark.slow
def test_relatedness_learns():
    rng = np.random.default_rng(0)
    parts = {}
    for name in ("train", "dev", "test"):
        features = rng.normal(size=(200, 4)).astype(np.float32)
        parts[name] = relatedness.ScoredPairs(features, np.clip(3 + features[:, 0], 1, 5))
    guesses, dev = relatedness.fit(parts, 1111)
    assert dev > 0.95
    assert stats.pearsonr(guesses, parts["test"].scores)[0] > 0.95


@pytest.mark.slow
def test_retrieval(monkeypatch):
    """Captions that are a linear map of their image, with noise: far above chance, and ranks as a sort gives them."""
    monkeypatch.setattr(retrieval, "_SIZE", 16)
    monkeypatch.setattr(retrieval, "_RANKED", 100)
    monkeypatch.setattr(retrieval, "_RATE", 0.03)
    monkeypatch.setattr(retrieval, "_LAST_EPOCH", 8)
    rng = np.random.default_rng(0)
    link = rng.normal(size=(8, 6))
    parts = {}
    for name, count in (("train", 60), ("dev", 40), ("test", 40)):
        images = rng.normal(size=(count, 8)).astype(np.float32)
        captions = np.repeat(images @ link, 5, axis=0) + 0.1 * rng.normal(size=(5 * count, 6))
        parts[name] = captions.astype(np.float32), images
    metrics = retrieval.measure(parts, 1111)
    assert metrics["image_1"].value > 30, "chance is 5: an image of 20"
    assert metrics["image_1"].value <= metrics["image_5"].value <= metrics["image_10"].value
    assert metrics["caption_rank"].value >= 1


def test_ranks():
    params = {"image": (np.eye(2, dtype=np.float32), np.zeros(2, np.float32))} | {
        "text": (np.eye(2, dtype=np.float32), np.zeros(2, np.float32))
    }
    images = np.array([[1, 0], [0, 1]], np.float32)
    texts = np.array([[1, 0.1]] * 4 + [[0.1, 1]] + [[0.2, 1]] * 5, np.float32)
    flags, medians = retrieval._recalls(params, texts, images)
    assert flags["image_1"].tolist() == [True] * 4 + [False] + [True] * 5
    assert flags["caption_1"].tolist() == [True, False], "the caption of the first image is nearer to the second"
    assert medians == {"caption": 1.0, "image": 1.0}


def test_intervals():
    """Wilson's and Fisher's as textbooks have them; a bootstrap of F1 around its value."""
    metric = intervals.share(np.array([True] * 8 + [False] * 2))
    assert (metric.value, round(metric.low, 1), round(metric.high, 1)) == (80, 49.0, 94.3)
    rng = np.random.default_rng(0)
    x = rng.normal(size=103)
    y = x + rng.normal(size=103)
    pearson = intervals.correlation(x, y, "pearson")
    expected = stats.pearsonr(x, y)
    assert pearson.value == pytest.approx(100 * expected.statistic)
    low, high = expected.confidence_interval(0.95)
    assert (pearson.low, pearson.high) == (pytest.approx(100 * low), pytest.approx(100 * high))
    assert intervals.correlation(np.ones(5), x[:5], "spearman").value == 0
    guesses, golds = x > 0, y > 0
    f1 = intervals.f1(guesses, golds)
    assert f1.low < f1.value < f1.high
    assert f1.value == pytest.approx(200 * (guesses & golds).sum() / (guesses.sum() + golds.sum()))


def test_refusals():
    loaded = LoadedTask(BY_NAME["MR"], Dataset({"all": rows(60)}, 2))
    with pytest.raises(UserError, match=r"MR has 60 rows, and 10 folds need 100; choose a smaller --classifier.kfold"):
        evaluate(encode, [loaded])
    for wrong, message in (
        (lambda texts: encode(texts)[:-1], r"the encoder returns float64 \[\d+, 9\] for 60 texts"),
        (lambda texts: encode(texts)[0], r"returns float64 \[9\] for 60 texts; it must return one vector of each"),
        (lambda texts: encode(texts) * np.nan, "returns a vector that is not finite for text 1"),
    ):
        with pytest.raises(UserError, match=message):
            evaluate(wrong, [loaded], FAST)
