"""The optimum of logistic regression for all folds and strengths at once: scikit-learn's path of SentEval.

It minimises |w|^2 / 2 + C * sum of the losses of a fit's rows; biases are not penalised. Two classes have one logit,
more classes one each. All problems share the vectors x [N,D], so that a product with all kernels [D,P*K] is one matrix
product; a mask [N,P] says whose rows count. Newton's method, whose systems conjugate gradients solve.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from train.lab.sentences.fits import Fit, Fitted
from train.lab.sentences.settings import Settings

# Logits of a pass over all rows, at most; steps of Newton; of each, products with the Hessian, and halvings.
_LOGITS, _STEPS, _PRODUCTS, _HALVINGS = 1 << 26, 30, 40, 6

# The largest element of the gradient of the mean loss at which a problem is solved.
_TOLERANCE = 1e-5


class Problems(NamedTuple):
    """x [N,D+1], whose last column is 1; one-hot classes y [N,K]; rows [N,P] of each problem; C [P]."""

    x: Array
    y: Array
    rows: Array
    inverse: Array


class ExactTrainer:
    """Has the members of `fits.MinibatchTrainer`; `strengths` are C, the inverse of the penalty."""

    def __init__(self, x: np.ndarray, y: np.ndarray, classes: int, strengths: Sequence[float], settings: Settings):
        self.y, self.strengths = np.asarray(y), tuple(strengths)
        self.x = jnp.asarray(np.concatenate([x, np.ones((len(x), 1))], axis=1), jnp.float32)
        self.columns = 1 if classes == 2 else classes
        is_class = self.y[:, None] == np.arange(classes)
        self.targets = jnp.asarray(is_class[:, 1:] if classes == 2 else is_class, jnp.float32)

    def run(self, fits: Sequence[Fit], advance: Callable[[int], None] = lambda fits: None) -> list[Fitted]:
        """The outcome of every fit."""
        outcomes = []
        size = max(1, _LOGITS // (len(self.x) * self.columns * len(self.strengths)))
        for start in range(0, len(fits), size):
            part = list(fits[start : start + size])
            part += part[-1:] * (min(size, len(fits)) - len(part))
            guesses = self._guesses(part)
            for fit, classes in list(zip(part, guesses, strict=True))[: len(fits) - start]:
                dev = np.array(
                    [(chosen[fit.dev] == self.y[fit.dev]).mean() if len(fit.dev) else 0 for chosen in classes]
                )
                outcomes.append(Fitted(dev, classes[:, fit.test]))
                advance(1)
        return outcomes

    def _guesses(self, fits: Sequence[Fit]) -> np.ndarray:
        """The classes of all rows by the optimum of every fit and strength, int [F,R,N]."""
        rows = np.zeros((len(self.x), len(fits), len(self.strengths)), np.float32)
        for index, fit in enumerate(fits):
            rows[fit.train, index] = 1
        inverse = np.tile(np.array(self.strengths, np.float32), len(fits))
        problems = Problems(self.x, self.targets, jnp.asarray(rows.reshape(len(self.x), -1)), jnp.asarray(inverse))
        logits = _logits(self.x, _solve(problems))
        classes = (logits[..., 0] > 0) if self.columns == 1 else logits.argmax(-1)
        return np.asarray(classes).T.reshape(len(fits), len(self.strengths), -1).astype(np.int64)


@jax.jit
def _solve(problems: Problems) -> Array:
    """The kernels [D+1,P,K] at the optimum."""
    start = jnp.zeros((problems.x.shape[1], len(problems.inverse), problems.y.shape[1]), jnp.float32)

    def is_open(carry) -> Array:
        _, step, gradient = carry
        return (step < _STEPS) & (_largest(problems, gradient) > _TOLERANCE).any()

    def newton(carry):
        kernels, step, gradient = carry
        direction = _conjugate_gradients(problems, kernels, gradient)
        kernels = _line_search(problems, kernels, direction)
        return kernels, step + 1, _gradient(problems, kernels)

    return jax.lax.while_loop(is_open, newton, (start, jnp.int32(0), _gradient(problems, start)))[0]


def _logits(x: Array, kernels: Array) -> Array:
    """x [N,D], kernels [D,P,K] -> [N,P,K]."""
    return jnp.einsum("nd,dpk->npk", x, kernels, precision="highest")


def _probabilities(logits: Array) -> Array:
    return jax.nn.sigmoid(logits) if logits.shape[-1] == 1 else jax.nn.softmax(logits)


def _penalised(kernels: Array) -> Array:
    """The kernels without their biases, which are the last row."""
    return kernels.at[-1].set(0)


def _objective(problems: Problems, kernels: Array) -> Array:
    """The objective of every problem [P], over C and the rows of the problem."""
    logits, y = _logits(problems.x, kernels), problems.y[:, None]
    if logits.shape[-1] == 1:
        losses = (jax.nn.softplus(logits) - y * logits)[..., 0]
    else:
        losses = jax.nn.logsumexp(logits, axis=-1) - (y * logits).sum(-1)
    penalty = jnp.square(_penalised(kernels)).sum((0, 2)) / 2 / problems.inverse
    return (penalty + (losses * problems.rows).sum(0)) / problems.rows.sum(0)


def _gradient(problems: Problems, kernels: Array) -> Array:
    """The gradient of |w|^2 / 2C + the losses, [D,P,K]."""
    errors = (_probabilities(_logits(problems.x, kernels)) - problems.y[:, None]) * problems.rows[..., None]
    return _penalised(kernels) / problems.inverse[None, :, None] + _transposed(problems, errors)


def _transposed(problems: Problems, values: Array) -> Array:
    return jnp.einsum("nd,npk->dpk", problems.x, values, precision="highest")


def _largest(problems: Problems, gradient: Array) -> Array:
    """The largest element of the gradient of the mean loss, [P]."""
    return jnp.abs(gradient).max((0, 2)) / problems.rows.sum(0)


def _conjugate_gradients(problems: Problems, kernels: Array, gradient: Array) -> Array:
    """The step of Newton's method [D,P,K]: Hessian times step = -gradient, nearly (Hestenes and Stiefel 1952)."""
    probabilities = _probabilities(_logits(problems.x, kernels))

    def product(direction: Array) -> Array:
        change = _logits(problems.x, direction)
        if change.shape[-1] == 1:
            change = change * probabilities * (1 - probabilities)
        else:
            change = probabilities * (change - (probabilities * change).sum(-1, keepdims=True))
        change = change * problems.rows[..., None]
        return _penalised(direction) / problems.inverse[None, :, None] + _transposed(problems, change)

    def dot(a: Array, b: Array) -> Array:
        return (a * b).sum((0, 2))

    start = dot(gradient, gradient)
    # Far from the optimum a rough solution will do (Dembo et al. 1982).
    goal = start * jnp.clip(jnp.sqrt(start) / problems.rows.sum(0), 0.01, 0.5) ** 2

    def is_open(carry) -> Array:
        _, _, _, left, count = carry
        return (count < _PRODUCTS) & (left > goal).any()

    def step(carry):
        solution, residual, direction, left, count = carry
        image = product(direction)
        curvature = dot(direction, image)
        goes_on = (left > goal) & (curvature > 0)
        length = jnp.where(goes_on, left / jnp.where(goes_on, curvature, 1.0), 0.0)[None, :, None]
        solution, residual = solution + length * direction, residual - length * image
        now = dot(residual, residual)
        ratio = jnp.where(goes_on, now / jnp.where(goes_on, left, 1.0), 0.0)
        direction = residual + ratio[None, :, None] * direction
        return solution, residual, direction, now, count + 1

    carry = (jnp.zeros_like(gradient), -gradient, -gradient, start, jnp.int32(0))
    return jax.lax.while_loop(is_open, step, carry)[0]


def _line_search(problems: Problems, kernels: Array, direction: Array) -> Array:
    """The kernels after the step, which is halved for every problem whose objective would rise."""
    before = _objective(problems, kernels)
    limit = before + 1e-6 * jnp.abs(before)  # what float32 can tell apart

    def rises(lengths: Array) -> Array:
        return ~(_objective(problems, kernels + lengths[None, :, None] * direction) <= limit)

    def is_open(carry) -> Array:
        lengths, count = carry
        return (count < _HALVINGS) & rises(lengths).any()

    def halve(carry):
        lengths, count = carry
        return jnp.where(rises(lengths), lengths / 2, lengths), count + 1

    lengths, _ = jax.lax.while_loop(is_open, halve, (jnp.ones_like(before), jnp.int32(0)))
    lengths = jnp.where(rises(lengths), 0.0, lengths)
    return kernels + lengths[None, :, None] * direction
