"""Logistic regression at its optimum, against scipy's minimiser on the plain sum of losses."""

import numpy as np
import pytest
from scipy import optimize, special

from train.lab.sentences.exact import ExactTrainer, Problems, _solve
from train.lab.sentences.fits import Fit
from train.lab.sentences.settings import Settings


def problem(classes, rows=120, size=5):
    rng = np.random.default_rng(classes)
    x = rng.normal(size=(rows, size))
    return x, (x @ rng.normal(size=(size, classes)) + 2 * rng.normal(size=(rows, classes))).argmax(1)


def optimum(x, y, classes, inverse):
    """Kernel [D,K] and bias [K]; two classes have one logit."""
    columns = 1 if classes == 2 else classes

    def objective(flat):
        kernel, bias = flat[: x.shape[1] * columns].reshape(x.shape[1], columns), flat[x.shape[1] * columns :]
        logits = x @ kernel + bias
        if columns == 1:
            losses = np.logaddexp(0, logits[:, 0]) - y * logits[:, 0]
        else:
            losses = special.logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]
        return (kernel**2).sum() / 2 + inverse * losses.sum()

    result = optimize.minimize(objective, np.zeros((x.shape[1] + 1) * columns), method="L-BFGS-B", tol=1e-12)
    return result.x.reshape(x.shape[1] + 1, columns)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_all_problems_at_once_have_the_optimum_of_one(classes):
    """A mask says whose rows count; strengths differ by a factor of 32."""
    x, y = problem(classes)
    rows = [np.arange(100), np.arange(20, 120)]
    inverse = np.array([0.25, 8.0, 0.25, 8.0], np.float32)
    mask = np.stack([np.isin(np.arange(120), rows[n // 2]) for n in range(4)], axis=1).astype(np.float32)
    is_class = (y[:, None] == np.arange(classes)).astype(np.float32)
    targets = is_class[:, 1:] if classes == 2 else is_class
    design = np.concatenate([x, np.ones((120, 1))], axis=1).astype(np.float32)
    kernels = np.asarray(_solve(Problems(design, targets, mask, inverse)))
    for index in range(4):
        members = rows[index // 2]
        expected = optimum(x[members], y[members], classes, float(inverse[index]))
        expected[-1] -= 0 if classes == 2 else expected[-1].mean()
        actual = kernels[:, index].copy()
        actual[-1] -= 0 if classes == 2 else actual[-1].mean()
        np.testing.assert_allclose(actual, expected, atol=5e-3)


@pytest.mark.slow
def test_fits_in_parts_are_the_same(monkeypatch):
    x, y = problem(3)
    fits = [Fit(np.arange(n, n + 90), np.arange(10), np.arange(100, 120)) for n in (0, 10, 20)]
    trainer = ExactTrainer(x, y, 3, (0.5, 2.0), Settings(solver="exact"))
    at_once = trainer.run(fits)
    monkeypatch.setattr("train.lab.sentences.exact._LOGITS", 120 * 3 * 2 * 2)
    in_parts = trainer.run(fits)
    for a, b in zip(at_once, in_parts, strict=True):
        assert (a.predictions == b.predictions).all()
        assert (a.dev == b.dev).all()
        assert a.predictions.shape == (2, 20)
