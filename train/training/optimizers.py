"""The optimizers by name, each a function of the options, a learning rate and the specs of the parameters.

Those that look at matrices find them by the letters of the specs: our leaves are stacked along L, and a matrix has its inputs and its
outputs along several axes.
"""

import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import PartitionSpec, reshard

import tfm
from train.settings.schema import Optim


def adamw(options: Optim, rate: optax.Schedule, specs) -> optax.GradientTransformation:
    """Loshchilov & Hutter 2019, algorithm 2."""
    return optax.adamw(
        rate,
        b1=options.beta1,
        b2=options.beta2,
        eps=options.eps,
        weight_decay=options.decay,
        mask=tfm.decay_mask(specs),
    )


def lion(options: Optim, rate: optax.Schedule, specs) -> optax.GradientTransformation:
    """Chen et al. 2023, algorithm 2: the sign of a moment; one array where AdamW has two."""
    return optax.lion(rate, b1=options.beta1, b2=options.beta2, weight_decay=options.decay, mask=tfm.decay_mask(specs))


def adafactor(options: Optim, rate: optax.Schedule, specs) -> optax.GradientTransformation:
    """Shazeer & Stern 2018, algorithm 4, with the rate and the decay of AdamW (Zhai et al. 2022, section 3.4) and no first moment."""
    decay = optax.add_decayed_weights(options.decay, tfm.decay_mask(specs))
    return optax.chain(scale_by_factors(specs, options.beta2), decay, optax.scale_by_learning_rate(rate))


def muon(options: Optim, rate: optax.Schedule, specs) -> optax.GradientTransformation:
    """Jordan et al. 2024 for the matrices between layers, in steps as large as AdamW's (Liu et al. 2025, eq. 4); AdamW for tables, biases
    and norms. `options.beta1` is its momentum too."""
    matrices = optax.chain(
        optax.trace(options.beta1, nesterov=True),
        optax.stateless(lambda updates, params: jax.tree.map(orthogonal, updates, specs, is_leaf=_absent)),
        optax.add_decayed_weights(options.decay),
        optax.scale_by_learning_rate(rate),
    )
    kinds = jax.tree.map(lambda spec: "muon" if sides(spec)[0] and not set(spec.axes) & _ROWS else "adamw", specs)
    return optax.partition({"muon": matrices, "adamw": adamw(options, rate, specs)}, kinds)


OPTIMIZERS = {"adamw": adamw, "adafactor": adafactor, "lion": lion, "muon": muon}

# Rows of tables, and classes: what has these axes looks up or chooses, and maps nothing to anything.
_ROWS = set("VPYRC")


def sides(spec: tfm.Spec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of a matrix's or table's inputs, and those of its outputs, counted from the last; none for other parameters.

    A width at the end is all of the output; else the first axis is all of the input: [KGH,D], [D,KGH], [F,D], [V,D].
    """
    letters = spec.axes.removeprefix("L")
    if len(letters) < 2 or not spec.decay:
        return (), ()
    outputs = 1 if letters[-1] in "DEU" else len(letters) - 1
    return tuple(range(-len(letters), -outputs)), tuple(range(-outputs, 0))


class Factors(NamedTuple):
    """Steps done, and of each parameter the second moments: means over the outputs and over the inputs of a matrix, else all of them."""

    steps: Array
    moments: Any


def scale_by_factors(specs, most: float) -> optax.GradientTransformation:
    """A gradient by the root of its second moment, of which a matrix keeps row and column means alone; the root mean square of what comes
    out is 1 at most, in every layer. The moment's decay is 1 - t^-0.8, and `most` at most.

    A mean keeps its axes, of size 1, so that each leaf is sharded as its parameter along those that are left.
    """

    def means(spec, square):
        inputs, outputs = sides(spec)
        return tuple(square.mean(axes, keepdims=True) for axes in (outputs, inputs)) if inputs else (square,)

    def scaled(spec, gradient, moments):
        if (
            len(moments) == 2
        ):  # two roots: the product of means of a row and a column that saw no gradient is 0 in float32
            rows, columns = moments
            gradient, moments = gradient * jax.lax.rsqrt(rows / rows.mean(sides(spec)[0], keepdims=True)), (columns,)
        update = gradient * jax.lax.rsqrt(moments[0])
        inner = tuple(range(spec.axes.startswith("L"), update.ndim))
        return update / jnp.maximum(1, jnp.sqrt(jnp.square(update).mean(inner, keepdims=True)))

    def init(params):
        return Factors(
            jnp.zeros((), jnp.int32),
            jax.tree.map(lambda spec, param: means(spec, jnp.zeros_like(param)), specs, params),
        )

    def update(updates, state, params=None):
        steps = state.steps + 1
        keep = jnp.minimum(most, 1 - steps.astype(jnp.float32) ** -0.8)

        def moved(spec, gradient, old):
            new = means(spec, jnp.square(gradient) + 1e-30)
            return tuple(keep * one + (1 - keep) * other for one, other in zip(old, new, strict=True))

        moments = jax.tree.map(moved, specs, updates, state.moments)
        return jax.tree.map(scaled, specs, updates, moments), Factors(steps, moments)

    return optax.GradientTransformation(init, update)


def orthogonal(update: Array, spec: tfm.Spec) -> Array:
    """The nearest matrix whose singular values are equal, about, and whose root mean square is 0.2, of each layer.

    Matrices must be whole for that: layers are spread over the devices as far as their number allows, and the result is sharded as
    before.
    """
    if _absent(update):
        return update
    inputs, outputs = (math.prod(update.shape[axis] for axis in axes) for axes in sides(spec))
    here = jax.typeof(update).sharding
    if not here.mesh.empty:
        update = reshard(
            update, PartitionSpec(_spread(here.mesh, update.shape[0]) if spec.axes.startswith("L") else None)
        )
    found = newton_schulz(update.reshape(-1, inputs, outputs)).reshape(update.shape) * (
        0.2 * max(inputs, outputs) ** 0.5
    )
    return found if here.mesh.empty else reshard(found, here)


def newton_schulz(x: Array) -> Array:
    """x [L,I,O] -> the same with singular values between 0.7 and 1.2: five steps of an odd polynomial (Jordan et al. 2024)."""
    x = x / (jnp.sqrt(jnp.square(x).sum((1, 2), keepdims=True)) + 1e-8)
    flat = x.shape[1] > x.shape[2]
    x = x.mT if flat else x
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if flat else x


def _spread(mesh, layers: int) -> tuple[str, ...]:
    """The first mesh axes whose product divides the layers."""
    sizes = itertools.accumulate(mesh.shape.values(), lambda one, other: one * other)
    return tuple(name for name, size in zip(mesh.axis_names, sizes, strict=True) if layers % size == 0)


def _absent(leaf: Any) -> bool:
    """Whether another optimizer has the parameter."""
    return isinstance(leaf, optax.MaskedNode)
