"""The protocol of SentEval in torch, and scikit-learn's folds and regression, where they are installed."""

import copy

import numpy as np
import pytest

from train.sentences import relatedness
from train.sentences.exact import ExactTrainer
from train.sentences.fits import Fit, Trainer
from train.sentences.randomness import held_out, linear_starts, stratified_folds
from train.sentences.settings import Settings

pytestmark = pytest.mark.parity


def problem(rows=600, size=20, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, size)).astype(np.float32)
    y = (x @ rng.normal(size=(size, classes)) + 3 * rng.normal(size=(rows, classes))).argmax(1)
    return x, y


def torch_fit(x, y, fit, classes, settings, penalty):
    """SentEval's classifier with torch on a CPU: the best share of right development rows, and the test classes."""
    import torch

    np.random.seed(settings.seed)
    torch.manual_seed(settings.seed)
    hidden = settings.nhid
    layers = (
        [torch.nn.Linear(x.shape[1], hidden), torch.nn.Sigmoid(), torch.nn.Linear(hidden, classes)]
        if hidden
        else [torch.nn.Linear(x.shape[1], classes)]
    )
    model = torch.nn.Sequential(*layers)
    kind = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[settings.optim]
    optimizer = kind(model.parameters(), weight_decay=penalty)
    if fit.skipped:
        np.random.permutation(fit.skipped)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    best, best_model, misses, epoch = -1, None, 0, 0
    while epoch <= settings.max_epoch:
        for _ in range(settings.epoch_size):
            order = np.random.permutation(len(fit.train))
            for first in range(0, len(order), settings.batch):
                rows = fit.train[order[first : first + settings.batch]]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
                optimizer.step()
        epoch += settings.epoch_size
        with torch.no_grad():
            accuracy = (model(inputs[fit.dev]).argmax(1) == labels[fit.dev]).double().mean().item()
        if accuracy > best:
            best, best_model = accuracy, copy.deepcopy(model)
        else:
            if misses >= settings.tenacity:
                break
            misses += 1
    with torch.no_grad():
        return best, best_model(inputs[fit.test]).argmax(1).numpy()


@pytest.mark.parametrize(("optim", "nhid"), [("adam", 0), ("rmsprop", 0), ("adam", 8)])
def test_torch(optim, nhid):
    settings = Settings(optim=optim, nhid=nhid, tenacity=2, max_epoch=40)
    x, y = problem()
    rows = np.arange(len(x))
    train, dev = held_out(rows[:450], 0.1, settings.seed)
    fits = [Fit(rows[:400], rows[400:450], rows[450:]), Fit(train, dev, rows[450:], skipped=450)]
    penalties = (1e-5, 1e-2)
    fitted = Trainer(x, y, 3, penalties, settings).run(fits)
    for fit, outcome in zip(fits, fitted, strict=True):
        for index, penalty in enumerate(penalties):
            best, classes = torch_fit(x, y, fit, 3, settings, penalty)
            assert abs(outcome.dev[index] - best) <= 1 / len(fit.dev)
            assert np.mean(outcome.predictions[index] == classes) >= 0.98


def test_starts():
    import torch

    torch.manual_seed(1111)
    for (kernel, bias), layer in zip(
        linear_starts(1111, (300, 50, 7)), (torch.nn.Linear(300, 50), torch.nn.Linear(50, 7)), strict=True
    ):
        np.testing.assert_allclose(kernel, layer.weight.detach().numpy().T, atol=1e-8)
        np.testing.assert_allclose(bias, layer.bias.detach().numpy(), atol=1e-8)


def test_relatedness():
    import torch
    from scipy.stats import pearsonr

    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 12)).astype(np.float32)
    scores = np.clip(3 + x[:, 0] + 0.5 * rng.normal(size=400), 1, 5)
    parts = {
        name: relatedness.Part(x[rows], scores[rows])
        for name, rows in (("train", slice(0, 200)), ("dev", slice(200, 300)), ("test", slice(300, 400)))
    }
    guesses, dev = relatedness.fit(parts, 1111)
    np.random.seed(1111)
    torch.manual_seed(1111)
    model = torch.nn.Sequential(torch.nn.Linear(12, 5), torch.nn.Softmax(dim=-1))
    optimizer = torch.optim.Adam(model.parameters())
    inputs, goals = torch.from_numpy(x), torch.from_numpy(relatedness.targets(scores))
    best, best_model, misses, epoch = -1, None, 0, 0
    while epoch <= 1000:
        for _ in range(50):
            order = np.random.permutation(200)
            for first in range(0, 200, 64):
                rows = order[first : first + 64]
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(inputs[rows]), goals[rows]).backward()
                optimizer.step()
        epoch += 50
        with torch.no_grad():
            now = pearsonr(model(inputs[200:300]).numpy() @ np.arange(1, 6), scores[200:300])[0]
        if now > best:
            best, best_model = now, copy.deepcopy(model)
        elif misses >= 3:
            break
        else:
            misses += 1
    with torch.no_grad():
        expected = best_model(inputs[300:]).numpy() @ np.arange(1, 6)
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
