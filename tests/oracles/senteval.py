"""SentEval's training of one classifier, step by step in numpy (float64) with loops: the answer for many at once."""

import numpy as np


def softmax(x):
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


class Adam:
    """The optimizer of torch: a penalty in the gradient, moments with bias corrections (Kingma and Ba 2015)."""

    def __init__(self, penalty, rate=1e-3):
        self.penalty, self.rate, self.step, self.moments = penalty, rate, 0, {}

    def update(self, name, value, gradient):
        gradient = gradient + self.penalty * value
        first, second = self.moments.get(name, (0.0, 0.0))
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        self.moments[name] = first, second
        corrected = first / (1 - 0.9**self.step), np.sqrt(second / (1 - 0.999**self.step)) + 1e-8
        return value - self.rate * corrected[0] / corrected[1]


class RmsProp(Adam):
    """torch's RMSprop."""

    def update(self, name, value, gradient):
        gradient = gradient + self.penalty * value
        square = 0.99 * self.moments.get(name, 0.0) + 0.01 * gradient**2
        self.moments[name] = square
        return value - 0.01 * gradient / (np.sqrt(square) + 1e-8)


def train(start, x, y, train_rows, dev_rows, settings, penalty, skipped=0):
    """Kernel and bias after SentEval's rounds with early stopping, and the best share of right development rows."""
    kernel, bias = (np.array(part, np.float64) for part in start)
    optimizer = {"adam": Adam, "rmsprop": RmsProp}[settings.optim](penalty)
    np_random = np.random.RandomState(settings.seed)
    if skipped:
        np_random.permutation(skipped)
    best, best_params, misses, epoch = -1.0, None, 0, 0
    while epoch <= settings.max_epoch:
        for _ in range(settings.epoch_size):
            order = np_random.permutation(len(train_rows))
            for first in range(0, len(order), settings.batch):
                rows = np.asarray(train_rows)[order[first : first + settings.batch]]
                errors = softmax(x[rows] @ kernel + bias)
                errors[np.arange(len(rows)), y[rows]] -= 1
                errors /= len(rows)
                optimizer.step += 1
                kernel, bias = (
                    optimizer.update("kernel", kernel, x[rows].T @ errors),
                    optimizer.update("bias", bias, errors.sum(0)),
                )
        epoch += settings.epoch_size
        accuracy = np.mean((x[dev_rows] @ kernel + bias).argmax(1) == y[dev_rows])
        if accuracy > best:
            best, best_params = accuracy, (kernel, bias)
        else:
            if misses >= settings.tenacity:
                break
            misses += 1
    return best_params, best
