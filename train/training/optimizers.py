"""The optimizers by name: functions of the options, a learning rate and the specs of the parameters."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from optax import contrib

import tfm
from tfm.params import PyTree
from train.settings.optim import Optim
from train.training import matrices
from train.training.eigenbases import scale_by_eigenbases
from train.training.matrices import is_masked, maps_vectors, matrix_axes, scale_by_neurons


def adamw(options: Optim, rate: optax.Schedule, specs) -> optax.GradientTransformation:
    """Loshchilov & Hutter 2019, algorithm 2."""
    moments = optax.scale_by_adam(options.beta1, options.beta2, options.eps)
    return optax.chain(moments, decayed(options, specs), optax.scale_by_learning_rate(rate))


def stable_adamw(options: Optim, rate: optax.Schedule, specs) -> optax.GradientTransformation:
    """AdamW with the update clipping of Adafactor (Wortsman et al. 2023).

    A parameter of a layer whose gradient is large for its second moment has a smaller rate. Moments need no bias
    correction: their decay grows from 0. ModernBERT was trained so (Warner et al. 2024).
    """
    return optax.chain(scale_by_clipped_moments(options, specs), optax.scale_by_learning_rate(rate))


def lion(options: Optim, rate: optax.Schedule, specs) -> optax.GradientTransformation:
    """Chen et al. 2023, algorithm 2: the sign of a moment; one array where AdamW has two."""
    moment = optax.scale_by_lion(options.beta1, options.beta2)
    return optax.chain(moment, decayed(options, specs), optax.scale_by_learning_rate(rate))


def adafactor(options: Optim, rate: optax.Schedule, specs) -> optax.GradientTransformation:
    """Shazeer & Stern 2018, algorithm 4, without a first moment.

    Rate and decay are as in AdamW (Zhai et al. 2022, section 3.4): steps do not follow the size of the parameters, as
    with `scale_parameter=False, relative_step=False` of transformers.
    """
    factors = scale_by_factors(specs, options.beta2)
    return optax.chain(factors, decayed(options, specs), optax.scale_by_learning_rate(rate))


def muon(options: Optim, rate: optax.Schedule, specs) -> optax.GradientTransformation:
    """Jordan et al. 2024 for the matrices of layers; AdamW for tables, biases and norms.

    Updates are as large as those of AdamW (Liu et al. 2025, eq. 4), as with `adjust_lr_fn="match_rms_adamw"` of torch.
    `options.beta1` is the momentum too, Nesterov's. The polynomial is in float32, that of torch in bfloat16.
    """
    return _by_matrices(options, rate, specs, _momentum(options), _orthogonal(specs, matrices.JORDAN))


def normuon(options: Optim, rate: optax.Schedule, specs) -> optax.GradientTransformation:
    """`muon` by better polynomials, with a second moment of each neuron (NorMuon: Li et al. 2025), whose decay is
    `options.beta2`."""
    orthogonal = _orthogonal(specs, matrices.POLAR_EXPRESS)
    return _by_matrices(options, rate, specs, _momentum(options), orthogonal, scale_by_neurons(specs, options.beta2))


def soap(options: Optim, rate: optax.Schedule, specs) -> optax.GradientTransformation:
    """Adam in the eigenbases of Shampoo's factors (Vyas et al. 2025, algorithm 3) for the matrices of layers; AdamW for
    tables, biases and norms. `options.beta2` is the decay of the factors too."""
    return _by_matrices(options, rate, specs, scale_by_eigenbases(specs, options.beta1, options.beta2, options.eps))


def _momentum(options: Optim) -> optax.GradientTransformation:
    """Nesterov's, without a share of the gradient that shrinks."""
    return optax.trace(options.beta1, nesterov=True)


def _orthogonal(specs, steps: matrices.Polynomials) -> optax.GradientTransformation:
    """Updates of matrices with equal singular values."""
    of_leaf = partial(matrices.orthogonal, steps=steps)
    return optax.stateless(lambda updates, params: jax.tree.map(of_leaf, updates, specs, is_leaf=is_masked))


def _by_matrices(
    options: Optim, rate: optax.Schedule, specs, *transforms: optax.GradientTransformation
) -> optax.GradientTransformation:
    """Transforms of gradients, and decay, for the matrices of layers; AdamW for the rest."""
    of_matrices = optax.chain(*transforms, decayed(options, specs), optax.scale_by_learning_rate(rate))
    labels = jax.tree.map(lambda spec: "muon" if maps_vectors(spec) else "adamw", specs)  # as in saved states
    return optax.partition({"muon": of_matrices, "adamw": adamw(options, rate, specs)}, labels)


def sgd(options: Optim, rate: optax.Schedule, specs) -> optax.GradientTransformation:
    """Gradient descent with momentum (Sutskever et al. 2013, eq. 1 to 4), and decay apart from it as in AdamW."""
    momentum = [optax.trace(options.beta1, options.nesterov)] if options.beta1 else []
    return optax.chain(*momentum, decayed(options, specs), optax.scale_by_learning_rate(rate))


def schedule_free(options: Optim, rate: optax.Schedule, specs) -> optax.GradientTransformation:
    """AdamW without momentum and without a decay of the rate (Defazio et al. 2024, algorithm 1).

    Gradients are those at y, which the parameters are; z moves by them, and the average x of all z is evaluated
    (`schedule_free_average`). `options.beta1` is the share of x in y; a step counts by the square of the largest rate
    so far. z starts at the parameters of the first step, wherever these come from.
    """
    moments = optax.scale_by_rms(options.beta2, options.eps, eps_in_sqrt=False, bias_correction=True)
    inner = optax.chain(moments, decayed(options, specs), optax.scale_by_learning_rate(rate))
    averaged = contrib.schedule_free(inner, lambda count: rate(count - 1), b1=options.beta1)  # optax counts from 1

    def update(updates, state, params=None):
        start = lambda weights, param: jnp.where(state.step_count == 1, param, weights)
        return averaged.update(updates, state._replace(z=jax.tree.map(start, state.z, params)), params)

    return optax.GradientTransformation(averaged.init, update)


def schedule_free_average(options: Optim, state: PyTree, params: PyTree) -> PyTree:
    """x, out of y, which are the parameters, and z, which the state of the optimizer has."""
    weights = optax.tree_utils.tree_get(state, "z")
    return jax.tree.map(lambda y, z: (y - (1 - options.beta1) * z) / options.beta1, params, weights)


OPTIMIZERS = {
    "adamw": adamw,
    "stable_adamw": stable_adamw,
    "schedule_free": schedule_free,
    "adafactor": adafactor,
    "lion": lion,
    "muon": muon,
    "normuon": normuon,
    "soap": soap,
    "sgd": sgd,
}


def decayed(options: Optim, specs) -> optax.GradientTransformation:
    """Adds weight decay to updates of matrices, before the rate and its sign."""

    def add(spec, update, param):
        return update + _decay_of(options, spec, update, param) if spec.decay and not is_masked(update) else update

    return optax.stateless(lambda updates, params: jax.tree.map(add, specs, updates, params))


def _decay_of(options: Optim, spec: tfm.Spec, update: Array, param: Array) -> Array:
    """The decay of a parameter whose `update` will be subtracted, after both are multiplied by its share of the rate.
    It is cautious where it leaves out elements that the update makes larger (Chen et al. 2025, algorithm 1)."""
    decay = options.decay / spec.rate * param
    return jnp.where(update * param >= 0, decay, 0) if options.cautious_decay else decay


class Moments(NamedTuple):
    """Steps done, and the first and second moments of each parameter."""

    steps: Array
    first: PyTree
    second: PyTree


def scale_by_clipped_moments(options: Optim, specs) -> optax.GradientTransformation:
    """Updates of AdamW, decay included, over max(1, rms): rms is that of gradients over roots of second moments, of a
    parameter in a layer."""

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return Moments(jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.zeros_like, params))

    def update(updates, state, params=None):
        steps = state.steps + 1
        keep_first, keep_second = (_unbiased(decay, steps) for decay in (options.beta1, options.beta2))
        first = jax.tree.map(lambda mean, grad: keep_first * mean + (1 - keep_first) * grad, state.first, updates)
        second = jax.tree.map(
            lambda mean, grad: keep_second * mean + (1 - keep_second) * jnp.square(grad), state.second, updates
        )

        def clipped(spec, grad, mean, square, param):
            axes = tuple(range(spec.axes.startswith("L"), grad.ndim))
            ratios = jnp.square(grad) / jnp.maximum(square, options.eps**2)
            rms = jnp.sqrt(ratios.mean(axes, keepdims=True))
            update = mean / (jnp.sqrt(square) + options.eps)
            decay = _decay_of(options, spec, update, param) if spec.decay else 0.0
            return (update + decay) / jnp.maximum(1, rms)

        return jax.tree.map(clipped, specs, updates, first, second, params), Moments(steps, first, second)

    return optax.GradientTransformation(init, update)


def _unbiased(decay: float, steps: Array) -> Array:
    """The decay of a moment in a step, from 1, with which it is the mean of Adam after bias correction."""
    power = decay ** (steps.astype(jnp.float32) - 1)
    return decay * (1 - power) / (1 - decay * power)


class Factors(NamedTuple):
    """Steps done, and the second moments of each parameter: of a matrix the means over outputs and over inputs."""

    steps: Array
    moments: PyTree


def scale_by_factors(specs, max_decay: float) -> optax.GradientTransformation:
    """Divides gradients by the root of their second moments, of which matrices keep only the row and column means.

    The root mean square of an update is at most 1 in every layer. The decay of the moments is 1 - t^-0.8, and at most
    `max_decay`. A mean keeps its axes with size 1, so that it is sharded as its parameter along the remaining axes.
    """

    def init(params):
        moments = jax.tree.map(lambda spec, param: _means(spec, jnp.zeros_like(param)), specs, params)
        return Factors(jnp.zeros((), jnp.int32), moments)

    def update(updates, state, params=None):
        steps = state.steps + 1
        decay = jnp.minimum(max_decay, 1 - steps.astype(jnp.float32) ** -0.8)

        def decayed(spec, gradient, moments):
            means = _means(spec, jnp.square(gradient) + 1e-30)
            return tuple(decay * moment + (1 - decay) * mean for moment, mean in zip(moments, means, strict=True))

        moments = jax.tree.map(decayed, specs, updates, state.moments)
        return jax.tree.map(_scaled, specs, updates, moments), Factors(steps, moments)

    return optax.GradientTransformation(init, update)


def _means(spec, square):
    """The means of a matrix over its outputs and over its inputs; other parameters as they are."""
    inputs, outputs = matrix_axes(spec)
    return tuple(square.mean(axes, keepdims=True) for axes in (outputs, inputs)) if inputs else (square,)


def _scaled(spec, gradient, moments):
    """The gradient divided by the root of its second moment."""
    if len(moments) == 2:
        # Two roots: without a gradient in its row and its column, the product of both means is 0 in float32.
        rows, columns = moments
        gradient = gradient * jax.lax.rsqrt(rows / rows.mean(matrix_axes(spec)[0], keepdims=True))
        moments = (columns,)
    update = gradient * jax.lax.rsqrt(moments[0])
    axes = tuple(range(spec.axes.startswith("L"), update.ndim))
    return update / jnp.maximum(1, jnp.sqrt(jnp.square(update).mean(axes, keepdims=True)))
