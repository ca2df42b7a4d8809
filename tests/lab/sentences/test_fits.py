"""Many classifiers at once against one after the other in numpy; and the draws of torch and scikit-learn."""

import numpy as np
import pytest
from oracles import senteval

from train import UserError
from train.lab.sentences.fits import Fit, MinibatchTrainer
from train.lab.sentences.randomness import Orders, held_out, linear_starts, stratified_folds
from train.lab.sentences.settings import PROTOCOLS, Settings

PENALTIES = (1e-4, 1e-1)


def problem(rows=150, size=6, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, size)).astype(np.float32)
    y = (x @ rng.normal(size=(size, classes)) + 1.5 * rng.normal(size=(rows, classes))).argmax(1)
    return x, y


def fits_of(y, settings):
    """Three folds, of unequal sizes, and one fit with rows held out; more than there are slots."""
    folds = stratified_folds(y, 3, 1111, "x")
    rows = np.arange(len(y))
    fits = [Fit(rows[folds != k], rows[folds == k], np.zeros(0, int)) for k in range(3)]
    train, dev = held_out(rows[folds != 0], 0.2, settings.seed)
    return [*fits, Fit(train, dev, rows[folds == 0], skipped=int((folds != 0).sum()))]


@pytest.mark.slow
@pytest.mark.parametrize("optim", ["adam", "rmsprop"])
def test_every_fit_is_that_of_a_loop(optim, monkeypatch):
    """Two slots, which take further fits: epochs, orders and counts of misses are of the fit, not of the slot."""
    monkeypatch.setattr("train.lab.sentences.fits._SLOTS_CPU", 2)
    settings = Settings(optim=optim, batch=16, tenacity=1, epoch_size=2, max_epoch=30, seed=5)
    x, y = problem()
    fits = fits_of(y, settings)
    done = []
    fitted = MinibatchTrainer(x, y, 3, PENALTIES, settings).run(fits, done.append)
    assert done == [1] * len(fits)
    start = linear_starts(5, (6, 3))[0]
    for fit, outcome in zip(fits, fitted, strict=True):
        for index, penalty in enumerate(PENALTIES):
            (kernel, bias), best = senteval.train(start, x, y, fit.train, fit.dev, settings, penalty, fit.skipped)
            assert outcome.dev[index] == pytest.approx(best)
            assert (outcome.predictions[index] == (x[fit.test] @ kernel + bias).argmax(1)).all()


@pytest.mark.slow
def test_a_hidden_layer_learns_what_a_linear_one_cannot():
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0], (400, 2)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    x += 0.1 * rng.normal(size=x.shape).astype(np.float32)
    fit = Fit(np.arange(300), np.arange(300, 400), np.arange(300, 400))
    linear, hidden, dropped = (
        MinibatchTrainer(
            x, y, 2, (1e-5,), Settings(nhid=nhid, dropout=dropout, optim="rmsprop", max_epoch=60, tenacity=9)
        ).run([fit])[0]
        for nhid, dropout in ((0, 0.0), (16, 0.0), (16, 0.1))
    )
    assert linear.dev[0] < 0.8 < 0.95 < min(hidden.dev[0], dropped.dev[0])


def test_starts_are_those_of_torch():
    """torch.manual_seed(1111), then Linear(3, 2): what torch 2.13 draws."""
    kernel, bias = linear_starts(1111, (3, 2))[0]
    expected = [[-0.0454999954, -0.1187311038], [-0.4792244136, 0.5251538157], [0.3475042284, 0.1133739278]]
    np.testing.assert_allclose(kernel, expected, atol=1e-7)
    np.testing.assert_allclose(bias, [-0.0206727069, 0.5133672953], atol=1e-7)


def test_folds_are_stratified_and_shuffled():
    labels = np.array([1] * 17 + [0] * 8 + [2] * 5)
    folds = stratified_folds(labels, 5, 1111, "x")
    counts = np.array([[np.sum((folds == fold) & (labels == label)) for label in range(3)] for fold in range(5)])
    assert (counts.max(0) - counts.min(0) <= 1).all()
    assert (counts[:, 2] == 1).all()
    assert (np.diff(folds[:17]) < 0).any(), "shuffled"
    assert not (folds == stratified_folds(labels, 5, 1, "x")).all()
    with pytest.raises(UserError, match="MR has no class with 20 rows, one a fold .the largest has 17."):
        stratified_folds(labels, 20, 1111, "MR")


def test_orders_are_numpys():
    orders = Orders(3)
    state = np.random.RandomState(3)
    expected = [state.permutation(7) for _ in range(3)]
    assert (orders.order(7, 2) == expected[2]).all()
    assert (orders.order(7, 0) == expected[0]).all()
    state = np.random.RandomState(3)
    shuffled = state.permutation(10)
    assert (orders.order(8, 0, skipped=10) == state.permutation(8)).all()
    train, dev = held_out(np.arange(10) + 100, 0.2, 3)
    assert (dev == shuffled[:2] + 100).all()
    assert (train == shuffled[2:] + 100).all()


def test_settings():
    assert Settings(**PROTOCOLS["comparable"]) == Settings(
        kfold=10, nhid=0, optim="adam", batch=64, tenacity=5, epoch_size=4
    )
    prototype = Settings(**PROTOCOLS["prototype"])
    assert (prototype.kfold, prototype.optim, prototype.batch) == (5, "rmsprop", 128)
    with pytest.raises(ValueError, match="dropout=0.1 is of the hidden layer"):
        Settings(dropout=0.1)
    with pytest.raises(ValueError, match="solver=exact is for logistic regression"):
        Settings(solver="exact", nhid=5)
