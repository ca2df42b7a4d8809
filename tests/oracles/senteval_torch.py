"""The two paths of SentEval, torch and scikit-learn, written plainly: rows, features, one classifier at a time.

Texts are encoded by `encode(words)`, one sentence at a time; settings are those of `train.sentences`.
"""

import copy
from pathlib import Path

import numpy as np
from scipy import stats


class TorchClassifier:
    """SentEval's MLP: early stopping by development rows, or by a twentieth of the rows that it draws."""

    def __init__(self, inputs, classes, penalty, settings):
        import torch

        np.random.seed(settings.seed)
        torch.manual_seed(settings.seed)
        hidden = settings.nhid
        layers = (
            [torch.nn.Linear(inputs, hidden), torch.nn.Sigmoid(), torch.nn.Linear(hidden, classes)]
            if hidden
            else [torch.nn.Linear(inputs, classes)]
        )
        self.model, self.settings = torch.nn.Sequential(*layers), settings
        kind = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[settings.optim]
        self.optimizer = kind(self.model.parameters(), weight_decay=penalty)

    def fit(self, x, y, dev=None):
        """Trains until the development rows are no longer predicted better; keeps the best model and its accuracy."""
        if dev is None:
            order = np.random.permutation(len(x))
            cut = int(0.05 * len(x))
            dev = x[order[:cut]], y[order[:cut]]
            x, y = x[order[cut:]], y[order[cut:]]
        best_model, self.best, misses, epoch = None, -1, 0, 0
        while epoch <= self.settings.max_epoch:
            self._epochs(x, y)
            epoch += self.settings.epoch_size
            accuracy = self.score(*dev)
            if accuracy > self.best:
                self.best, best_model = accuracy, copy.deepcopy(self.model)
            else:
                if misses >= self.settings.tenacity:
                    break
                misses += 1
        self.model = best_model
        return self

    def _epochs(self, x, y):
        import torch

        inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
        for _ in range(self.settings.epoch_size):
            order = np.random.permutation(len(x))
            for first in range(0, len(order), self.settings.batch):
                rows = order[first : first + self.settings.batch]
                self.optimizer.zero_grad()
                torch.nn.functional.cross_entropy(self.model(inputs[rows]), labels[rows]).backward()
                self.optimizer.step()

    def predict(self, x):
        import torch

        with torch.no_grad():
            return self.model(torch.from_numpy(x)).argmax(1).numpy()

    def score(self, x, y):
        return float(np.mean(self.predict(x) == y))


def classifier(inputs, classes, strength, settings):
    """A classifier of torch's path, or of scikit-learn's."""
    if settings.solver == "minibatch":
        return TorchClassifier(inputs, classes, strength, settings)
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, random_state=settings.seed, max_iter=1000)


def folds_of(x, y, settings, seed):
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(settings.kfold, shuffle=True, random_state=seed).split(x, y)


def best_strength(x, y, classes, strengths, settings, seed):
    """The strength with the best mean accuracy over folds."""
    means = []
    for strength in strengths:
        scores = []
        for train, dev in folds_of(x, y, settings, seed):
            model = classifier(x.shape[1], classes, strength, settings)
            if settings.solver == "minibatch":
                model.fit(x[train], y[train], (x[dev], y[dev]))
            else:
                model.fit(x[train], y[train])
            scores.append(model.score(x[dev], y[dev]))
        means.append(round(100 * np.mean(scores), 2))
    return strengths[int(np.argmax(means))]


def penalties(settings, powers):
    return [10.0**n for n in range(-5, -1)] if settings.solver == "minibatch" else [2.0**n for n in powers]


def inner_folds(x, y, settings):
    """InnerKFoldClassifier: accuracy in hundredths."""
    scores = []
    for train, test in folds_of(x, y, settings, 1111):
        strength = best_strength(x[train], y[train], 2, penalties(settings, range(-2, 4)), settings, 1111)
        model = classifier(x.shape[1], 2, strength, settings).fit(x[train], y[train])
        scores.append(round(100 * model.score(x[test], y[test]), 2))
    return np.mean(scores)


def folds(train, test, classes, settings):
    """KFoldClassifier: accuracy in hundredths, and F1 of class 1."""
    strength = best_strength(*train, classes, penalties(settings, range(-1, 6)), settings, settings.seed)
    model = classifier(train[0].shape[1], classes, strength, settings).fit(*train)
    guesses = model.predict(test[0])
    hits = np.sum((guesses == 1) & (test[1] == 1))
    return 100 * np.mean(guesses == test[1]), 200 * hits / max(np.sum(guesses == 1) + np.sum(test[1] == 1), 1)


def targets(scores):
    """RelatednessPytorch's distribution over the scores 1 to 5."""
    rows = np.zeros((len(scores), 5), np.float32)
    for row, score in enumerate(scores):
        for level in range(5):
            if level + 1 == np.floor(score) + 1:
                rows[row, level] = score - np.floor(score)
            if level + 1 == np.floor(score):
                rows[row, level] = np.floor(score) - score + 1
    return rows


def relatedness(train, dev, test, seed=1111):
    """RelatednessPytorch: features and scores of three parts -> scores of the test rows, and the best correlation."""
    import torch

    np.random.seed(seed)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(train[0].shape[1], 5), torch.nn.Softmax(dim=-1))
    optimizer = torch.optim.Adam(model.parameters())
    inputs, goals = torch.from_numpy(train[0]), torch.from_numpy(targets(train[1]))

    def scores_of(x):
        with torch.no_grad():
            return model(torch.from_numpy(x)).numpy() @ np.arange(1, 6)

    best, kept, misses, epoch = -1, None, 0, 0
    while epoch <= 1000:
        for _ in range(50):
            order = np.random.permutation(len(inputs))
            for first in range(0, len(order), 64):
                rows = order[first : first + 64]
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(inputs[rows]), goals[rows]).backward()
                optimizer.step()
        epoch += 50
        correlation = stats.pearsonr(scores_of(dev[0]), dev[1])[0]
        if correlation > best:
            best, kept = correlation, scores_of(test[0])
        elif misses >= 3:
            break
        else:
            misses += 1
    return kept, best


def file_of(data, *names):
    """The first file with one of these names in the folders of `data`; None where there is none."""
    paths = (path for name in names for folder in data.split(",") for path in Path(folder).rglob(name))
    return next(paths, None)


def lines_of(path):
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        text = path.read_text(encoding="latin-1")
    return text.removesuffix("\n").split("\n")


def labelled(path, encode):
    """Lines of a class and a sentence, sorted by words and class -> vectors and classes."""
    rows = [(line.split()[1:], int(line.split()[0])) for line in lines_of(path)]
    rows.sort(key=lambda row: (len(row[0]), row[1]))
    return np.stack([encode(words) for words, _ in rows]), np.array([label for _, label in rows])


def paired(rows, encode):
    """Pairs of sentences with a score or class, sorted -> features |u-v|, u*v, and what is to be predicted."""
    rows = sorted(rows, key=lambda row: (len(row[0]), len(row[1]), row[2]))
    u, v = (np.stack([encode(row[side]) for row in rows]) for side in (0, 1))
    return np.concatenate([abs(u - v), u * v], axis=1), np.array([row[2] for row in rows])


def table(path, columns, kind, header):
    """Words of two columns, and the value in a third."""
    cells = [line.split("\t") for line in lines_of(path)[header:]]
    return [(row[columns[0]].split(), row[columns[1]].split(), kind(row[columns[2]])) for row in cells]


def mr(data, encode, settings):
    return {"accuracy": inner_folds(*labelled(file_of(data, "rt-polarity.all"), encode), settings)}


def trec(data, encode, settings):
    train, test = (labelled(file_of(data, f"TREC.{part}.all"), encode) for part in ("train", "test"))
    return {"accuracy": folds(train, test, 6, settings)[0]}


def mrpc(data, encode, settings):
    paths = [file_of(data, f"msr_paraphrase_{part}.txt") for part in ("train", "test")]
    train, test = (paired(table(path, (3, 4, 0), int, 1), encode) for path in paths)
    return dict(zip(("accuracy", "f1"), folds(train, test, 2, settings), strict=True))


def sick(data, encode, settings):
    paths = [file_of(data, f"SICK_{part}.txt") for part in ("train", "trial", "test_annotated")]
    return _related([table(path, (1, 2, 3), float, 1) for path in paths], encode)


def stsb(data, encode, settings):
    paths = [file_of(data, f"sts-{part}.csv", f"sts-{part}.tsv") for part in ("train", "dev", "test")]
    parts = [table(path, (5, 6, 4), float, 0) for path in paths if path]
    if len(parts) == 2:  # no test file: dev is tested, and a tenth of train stops the training
        order = np.random.RandomState(1111).permutation(len(parts[0]))
        rows = [parts[0][row] for row in order]
        parts = [rows[len(rows) // 10 :], rows[: len(rows) // 10], parts[1]]
    return _related(parts, encode)


def _related(parts, encode):
    train, dev, test = (paired(part, encode) for part in parts)
    guesses, _ = relatedness(train, dev, test)
    return {
        "pearson": 100 * stats.pearsonr(guesses, test[1])[0],
        "spearman": 100 * stats.spearmanr(guesses, test[1])[0],
    }


TASKS = {"MR": mr, "TREC": trec, "MRPC": mrpc, "SICK-R": sick, "STS-B": stsb}
