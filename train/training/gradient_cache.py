"""Gradients of a batch whose rows meet one another, and whose parts are encoded one after the other (Gao et al. 2021,
"Scaling deep contrastive learning batch size under memory limited setup").

All parts are encoded without a gradient. The loss of all vectors gives the gradient of each vector. Then every part is
encoded once more, and hands the gradients of its vectors on. Memory holds the activations of one part.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jax import Array

import tfm
from tfm.params import PyTree
from train.losses.joint import JointLoss
from train.losses.loss import objective, scalar_sums
from train.runs.state import LossScale
from train.training import loss_scale, stochastic_rounding

# The parameters of a pass, from those that change, and the key of its dropout.
ParamsOf = Callable[[PyTree, Array | None], PyTree]


def cached_gradient(
    loss: JointLoss,
    model: tfm.Config,
    params_of: ParamsOf,
    changing: PyTree,
    batch: Mapping[str, Array],
    key: Array | None,
    scale: LossScale | None = None,
) -> tuple[PyTree, dict[str, Array], None]:
    """Gradients of `changing`, float32, and the sums of the loss over all parts [parts, rows, ...] of a batch; rows
    have no memory. With a scale gradients are those of `loss_scale.scaled`.

    Dropout is the same in both passes over a part.
    """
    count = len(jax.tree.leaves(batch)[0])
    keys = None if key is None else jax.random.split(key, count)
    parts = (dict(batch), keys)

    def encode(changing: PyTree, part: tuple[Mapping[str, Array], Array | None]) -> Array:
        fields, part_key = part
        return loss.encode(params_of(changing, part_key), model, fields, part_key)

    def compare(changing: PyTree, vectors: Array) -> tuple[Array, dict[str, Array]]:
        outputs = loss.compare(params_of(changing, None), vectors, batch)
        return loss_scale.scaled(objective(outputs), outputs["weight"], scale), scalar_sums(outputs)

    vectors = jax.lax.map(lambda part: encode(changing, part), parts)
    (grads, vector_grads), sums = jax.grad(compare, argnums=(0, 1), has_aux=True)(changing, vectors)

    def add(total: PyTree, part: PyTree) -> tuple[PyTree, None]:
        *fields, cotangent = part
        backward = jax.vjp(lambda changing: encode(changing, tuple(fields)), changing)[1]
        return jax.tree.map(jnp.add, total, stochastic_rounding.widen(backward(cotangent)[0])), None

    grads, _ = jax.lax.scan(add, stochastic_rounding.widen(grads), (*parts, vector_grads))
    return grads, sums, None
