"""The optimizer and its schedule."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

import tfm
from tfm.axes import platform
from tfm.params import PyTree
from tfm.sharding import spec_of
from train.settings.optim import Optim
from train.training import eight_bits
from train.training.optimizers import OPTIMIZERS, schedule_free_average
from train.training.stochastic_rounding import widen

# Length of the array of learning rates: those of shorter runs are padded.
_FEWEST_RATES = 1024


def schedule(options: Optim, steps: int) -> optax.Schedule:
    """Step -> learning rate: linear warm-up to `options.rate`, then a decay to `options.final` of it after `steps`.

    noam and constant do not end there. wsd stays at the peak until `options.cooldown` before the end, and falls from
    there; 1-sqrt falls fast at first (both Haegele et al. 2024, section 3).
    """
    rate, shape = options.rate, options.schedule
    warmup = max(1, _steps(options.warmup, steps))
    rest = max(1, steps - warmup + 1)
    cooldown = min(rest, max(1, _steps(options.cooldown, steps)))
    stable = [optax.constant_schedule(rate), _decay(options.cooldown_shape, rate, options.final, cooldown)]
    own_ends = {
        # Vaswani et al. 2017, eq. 3, scaled to reach `rate` at its peak
        "noam": lambda n: rate * jnp.sqrt(warmup / (n + warmup)),
        "constant": optax.constant_schedule(rate),
        "wsd": optax.join_schedules(stable, [rest - cooldown]),
    }
    decay = own_ends.get(shape) or _decay(shape, rate, options.final, rest)
    return optax.join_schedules([optax.linear_schedule(rate / warmup, rate, warmup - 1), decay], [warmup - 1])


def _decay(shape: str, rate: float, final: float, steps: int) -> optax.Schedule:
    """From a rate to its `final` share in so many steps, and constant from there on."""
    if shape == "cosine":
        return optax.cosine_decay_schedule(rate, steps, final)
    if shape == "linear":
        return optax.linear_schedule(rate, rate * final, steps)
    return lambda n: rate * (1 - (1 - final) * jnp.sqrt(jnp.clip(n / steps, 0, 1)))


def _steps(duration: float, steps: int) -> int:
    """A number of steps; a duration below 1 is a fraction of all steps."""
    return round(duration * steps if duration < 1 else duration)


class Optimizer(NamedTuple):
    """The optimizer of the parameters that are trained.

    init: all parameters -> its state
    update: (gradients, state, params, rates) of the trained parameters -> (updates, state); by default its own rates
    specs: the declared parameters, which say what is trained, and what running state is
    rates: () -> learning rates by step, float32 [n]
    average: (state, trained parameters) -> their average, which is evaluated; None: the optimizer has none of its own
    """

    init: Callable[[PyTree], PyTree]
    update: Callable[..., tuple[PyTree, PyTree]]
    specs: PyTree
    rates: Callable[[], Array]
    average: Callable[[PyTree, PyTree], PyTree] | None = None

    @property
    def is_trained(self) -> PyTree:
        """A tree like the parameters: whether each is trained."""
        return tfm.trained_mask(self.specs)

    def split(self, params: PyTree) -> tuple[PyTree, PyTree]:
        """The trained and the frozen parameters: two trees with None in place of the others."""
        is_trained = self.is_trained
        frozen = jax.tree.map(lambda trained, leaf: None if trained else leaf, is_trained, params)
        return _only(is_trained, params), frozen

    def running(self, params: PyTree) -> PyTree:
        """The running state, which is some of the frozen parameters: a tree with None in place of others."""
        return jax.tree.map(lambda spec, leaf: leaf if spec.running else None, self.specs, params)

    def join(self, trained: PyTree, frozen: PyTree) -> PyTree:
        """The inverse of `split`."""
        return jax.tree.map(
            lambda leaf, frozen_leaf: frozen_leaf if leaf is None else leaf,
            trained,
            frozen,
            is_leaf=lambda leaf: leaf is None,
        )


def optimizer(
    options: Optim,
    steps: int,
    specs,
    scale: optax.GradientTransformation | None = None,
    rate: optax.Schedule | None = None,
) -> Optimizer:
    """The optimizer that the options name, after clipping of the global norm; decay as the specs say.

    `rate` is the learning rate by step, by default the schedule of the options.

    Parameters whose `Spec.trained` is False have no state and count in no norm. `scale` changes updates at last, such
    as by layer. The state starts in `options.moment_dtype`, vectors in float32 where that has eight bits; the training
    step keeps it so.
    """
    is_trained = tfm.trained_mask(specs)

    def transform(rates):
        inner = OPTIMIZERS[options.name](options, lambda count: rates[count], _only(is_trained, specs))
        transforms = [_clip(options.clip) if options.clip else None, inner, _scale_by_rate(specs), scale]
        transforms = [transform for transform in transforms if transform is not None]
        return optax.chain(*transforms) if len(transforms) > 1 else inner

    def init(params):
        return jax.tree.map(to_moment_dtype, transform(None).init(widen(_only(is_trained, params))))

    def update(gradients, state, params, rates=None):
        return transform(own_rates() if rates is None else rates).update(gradients, state, params)

    def own_rates():
        count = max(_FEWEST_RATES, 1 << steps.bit_length())  # a power of two: few shapes, and so few programs
        return (rate or schedule(options, steps))(jnp.arange(count)).astype(jnp.float32)

    def to_moment_dtype(leaf):
        if not leaf.ndim or not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        if options.moment_dtype == "int8":
            return eight_bits.encode(leaf, jnp.zeros_like(leaf)) if leaf.ndim > 1 else leaf
        return leaf.astype(options.moment_dtype)

    average = partial(schedule_free_average, options) if options.name == "schedule_free" else None
    return Optimizer(init, update, specs, own_rates, average)


def _only(is_chosen: PyTree, tree: PyTree) -> PyTree:
    """The tree with None in place of what is not chosen."""
    return jax.tree.map(lambda chosen, leaf: leaf if chosen else None, is_chosen, tree)


def _scale_by_rate(specs: PyTree) -> optax.GradientTransformation | None:
    """Updates times the share of the rate that each parameter has; None where all have 1."""
    if all(spec.rate == 1 for spec in jax.tree.leaves(specs)):
        return None
    shares = jax.tree.map(lambda spec: spec.rate, _only(tfm.trained_mask(specs), specs))
    return optax.stateless(lambda updates, params: jax.tree.map(lambda update, share: update * share, updates, shares))


def global_norm(tree) -> Array:
    """The joint norm of all arrays of a tree (Pascanu et al. 2013, section 3.2)."""
    return jnp.sqrt(sum(_squares(leaf).sum() for leaf in jax.tree.leaves(tree)))


def _squares(x: Array) -> Array:
    """Squares of the elements of x, or on a CPU sums of a few of them each.

    A first sum along an axis of at most 32 is one pass over memory (M15: 0.95 of a step). Without the barrier XLA
    merges both sums.
    """
    if platform() != "cpu" or x.ndim < 2:
        return jnp.square(x)
    if len(x) > 32 and spec_of(x)[-1] is None and x.shape[-1] % 16 == 0:
        x = jnp.moveaxis(x.reshape(*x.shape[:-1], 16, -1), -2, 0)
    return jax.lax.optimization_barrier(jnp.square(x).sum(0))


def _clip(limit: float) -> optax.GradientTransformation:
    """Gradients with a global norm of at most `limit`."""

    def scaled(gradients, params):
        factor = jnp.minimum(1, limit / global_norm(gradients))
        return jax.tree.map(lambda gradient: gradient * factor.astype(gradient.dtype), gradients)

    return optax.stateless(scaled)
