"""The protocol of SentEval in torch, and scikit-learn's folds and regression, where they are installed."""

import numpy as np
import pytest
from oracles import senteval_torch
from oracles.senteval_torch import TorchClassifier

from train.lab.sentences import relatedness
from train.lab.sentences.exact import ExactTrainer
from train.lab.sentences.fits import Fit, MinibatchTrainer
from train.lab.sentences.randomness import held_out, linear_starts, stratified_folds
from train.lab.sentences.settings import Settings

pytestmark = pytest.mark.parity


def problem(rows=600, size=20, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, size)).astype(np.float32)
    y = (x @ rng.normal(size=(size, classes)) + 3 * rng.normal(size=(rows, classes))).argmax(1)
    return x, y


@pytest.mark.parametrize(("optim", "nhid"), [("adam", 0), ("rmsprop", 0), ("adam", 8)])
def test_torch(optim, nhid):
    settings = Settings(optim=optim, nhid=nhid, tenacity=2, max_epoch=40)
    x, y = problem()
    rows = np.arange(len(x))
    train, dev = held_out(rows[:450], 0.05, settings.seed)
    fits = [Fit(rows[:400], rows[400:450], rows[450:]), Fit(train, dev, rows[450:], skipped=450)]
    penalties = (1e-5, 1e-2)
    fitted = MinibatchTrainer(x, y, 3, penalties, settings).run(fits)
    for fit, outcome in zip(fits, fitted, strict=True):
        for index, penalty in enumerate(penalties):
            model = TorchClassifier(x.shape[1], 3, penalty, settings)
            if fit.skipped:
                model.fit(x[:450], y[:450])
            else:
                model.fit(x[fit.train], y[fit.train], (x[fit.dev], y[fit.dev]))
            assert abs(outcome.dev[index] - model.best) <= 1 / len(fit.dev)
            assert np.mean(outcome.predictions[index] == model.predict(x[fit.test])) >= 0.98


def test_starts():
    import torch

    torch.manual_seed(1111)
    for (kernel, bias), layer in zip(
        linear_starts(1111, (300, 50, 7)), (torch.nn.Linear(300, 50), torch.nn.Linear(50, 7)), strict=True
    ):
        np.testing.assert_allclose(kernel, layer.weight.detach().numpy().T, atol=1e-8)
        np.testing.assert_allclose(bias, layer.bias.detach().numpy(), atol=1e-8)


def test_relatedness():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 12)).astype(np.float32)
    scores = np.clip(3 + x[:, 0] + 0.5 * rng.normal(size=400), 1, 5)
    slices = {"train": slice(0, 200), "dev": slice(200, 300), "test": slice(300, 400)}
    parts = {name: relatedness.ScoredPairs(x[rows], scores[rows]) for name, rows in slices.items()}
    guesses, dev = relatedness.fit(parts, 1111)
    expected, best = senteval_torch.relatedness(*parts.values())
    assert dev == pytest.approx(best, abs=1e-4)
    np.testing.assert_allclose(guesses, expected, atol=5e-3)


def test_scikit_learn():
    selection = pytest.importorskip("sklearn.model_selection")
    linear = pytest.importorskip("sklearn.linear_model")
    x, y = problem(classes=3)
    for labels in (y, np.minimum(y, 1)):
        folds = stratified_folds(labels, 7, 1111, "x")
        expected = selection.StratifiedKFold(7, shuffle=True, random_state=1111)
        for fold, (_, test) in enumerate(expected.split(x, labels)):
            assert (np.flatnonzero(folds == fold) == test).all()
        fit = Fit(np.arange(400), np.arange(400, 500), np.arange(500, 600))
        (fitted,) = ExactTrainer(x, labels, labels.max() + 1, (0.25, 8.0), Settings(solver="exact")).run([fit])
        for index, inverse in enumerate((0.25, 8.0)):
            model = linear.LogisticRegression(C=inverse).fit(x[:400], labels[:400])
            assert np.mean(fitted.predictions[index] == model.predict(x[500:])) >= 0.99
