"""The optimizer and its schedule."""

import jax
import jax.numpy as jnp
import optax
from jax import Array

from tfm.axes import platform
from tfm.sharding import spec_of
from train.settings.schema import Optim
from train.training.optimizers import OPTIMIZERS
from train.training.stochastic_rounding import widen


def schedule(options: Optim, steps: int) -> optax.Schedule:
    """Step -> learning rate: linear warm-up to `options.rate`, then a decay that ends at 0 after `steps`, except for noam and constant.

    wsd stays at the peak until `options.cooldown` before the end, and falls linearly from there (Haegele et al. 2024, section 3).
    """
    rate = options.rate
    warmup = max(1, _steps(options.warmup, steps))
    rest = max(1, steps - warmup + 1)
    cooldown = min(rest, max(1, _steps(options.cooldown, steps)))
    stable = [optax.constant_schedule(rate), optax.linear_schedule(rate, 0.0, cooldown)]
    decay = {
        "linear": optax.linear_schedule(rate, 0.0, rest),
        "cosine": optax.cosine_decay_schedule(rate, rest),
        "noam": lambda n: (
            rate * jnp.sqrt(warmup / (n + warmup))
        ),  # Vaswani et al. 2017, eq. 3, scaled to reach `rate` at its peak
        "constant": optax.constant_schedule(rate),
        "wsd": optax.join_schedules(stable, [rest - cooldown]),
    }[options.schedule]
    return optax.join_schedules([optax.linear_schedule(rate / warmup, rate, warmup - 1), decay], [warmup - 1])


def _steps(number: float, steps: int) -> int:
    """A number of steps, or a share of them all where it is less than 1."""
    return round(number * steps if number < 1 else number)


def optimizer(options: Optim, steps: int, specs) -> optax.GradientTransformation:
    """The optimizer that the options name, behind a limit on the global gradient norm; decay applies where the specs say so.

    Its state starts in `options.moment_dtype`; the training step keeps it so.
    """
    inner = OPTIMIZERS[options.name](options, schedule(options, steps), specs)
    inner = optax.chain(_clip(options.clip), inner) if options.clip else inner
    fit = lambda leaf: (
        leaf.astype(options.moment_dtype) if leaf.ndim and jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
    )
    return optax.GradientTransformation(lambda params: jax.tree.map(fit, inner.init(widen(params))), inner.update)


def global_norm(tree) -> Array:
    """The norm of all arrays of a tree together (Pascanu et al. 2013, section 3.2)."""
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
