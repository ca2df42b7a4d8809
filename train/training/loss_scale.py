"""Dynamic scaling of the loss, for layers that compute in float16 (Micikevicius et al. 2018, section 3.2).

float16 ends at 65,504, and has nothing between 0 and 6e-8, where many gradients are. So the backward pass begins with
the mean loss times a power of two, and divides the gradients of parameters, which are float32, by it. Gradients that
are not finite change nothing but the scale, which is halved; after `GROW_AFTER` updates in a row it is doubled.
"""

import dataclasses
from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from tfm.params import PyTree
from train.runs.state import LossScale, State
from train.training.stochastic_rounding import widen

FIRST, GROW_AFTER = 2.0**16, 2000

# Updates that were left out, among the sums of a step; and what the start of a run says.
OVERFLOWS = "overflows"
DESCRIPTION = f"float16, of the loss times {FIRST:,.0f}; where one overflows, the factor is halved, and no update made"


def new_scale() -> LossScale:
    """The scale of a run that begins."""
    return LossScale(jnp.float32(FIRST), jnp.int32(0), jnp.int32(0))


def scaled(loss: Array, weight: Array, scale: LossScale | None) -> Array:
    """The sum of losses [], whose weights add up to `weight`, times about scale / weight; as it is without a scale."""
    return loss if scale is None else loss * _factor(weight, scale)


def unscaled(grads: PyTree, weight: Array, scale: LossScale | None) -> PyTree:
    """The gradients of the sum of losses, float32 where there is a scale, from those of `scaled`."""
    return grads if scale is None else jax.tree.map(lambda grad: grad / _factor(weight, scale), widen(grads))


def _factor(weight: Array, scale: LossScale) -> Array:
    """A power of two, by which nothing is rounded."""
    return jnp.ldexp(scale.value, -jnp.frexp(jnp.maximum(weight, 1))[1])


def without_overflow(state: State, changed: State, sums: Mapping[str, Array]) -> tuple[State, dict[str, Array]]:
    """The state and the sums of a step, with the scale of the next one.

    After an overflow they are those from before, and sums of a finite loss. At a scale of 1 there is none: the run
    itself has diverged.
    """
    scale = state.scale
    assert scale is not None, "layers compute in float16"
    overflow = ~jnp.isfinite(sums["grad_norm"]) & (scale.value > 1)
    fields = {
        name: jax.tree.map(partial(jnp.where, overflow), getattr(state, name), getattr(changed, name))
        for name in ("params", "opt", "ema", "memory")
    }
    is_lost = overflow & ~jnp.isfinite(sums["loss"])
    sums = {name: jnp.where(is_lost, 0, value) for name, value in sums.items()}
    sums |= {"grad_norm": jnp.where(overflow, 0, sums["grad_norm"]), OVERFLOWS: overflow.astype(jnp.float32)}
    return dataclasses.replace(changed, scale=_adjusted(scale, overflow), **fields), sums


def _adjusted(scale: LossScale, overflow: Array) -> LossScale:
    """The scale of the next step."""
    grows = scale.updates + 1 == GROW_AFTER
    value = jnp.where(overflow, scale.value / 2, jnp.where(grows, scale.value * 2, scale.value))
    updates = jnp.where(overflow | grows, 0, scale.updates + 1)
    return LossScale(value, updates, scale.overflows + overflow.astype(jnp.int32))
