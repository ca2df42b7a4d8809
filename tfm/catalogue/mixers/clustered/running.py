"""Running state: moving averages of what training steps see, such as centroids of clusters or the power of a feature.

Running state is a leaf of the parameters that the optimizer does not train (`tfm.Spec.running`). JAX returns from the
backward pass what stands for a gradient; for running state that is its change. The training step adds it: the mean over
the parts of a batch, and the sum over the layers that share the state. So no function on the path from the layer to the
step hands anything on.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import reshard

from tfm.sharding import unshard_fsdp


def running_value(state: Array) -> Array:
    """The value as a layer reads it: float32, without a gradient."""
    return jax.lax.stop_gradient(unshard_fsdp(state).astype(jnp.float32))


def observe(state: Array, y: Array, observation: Array, momentum: float) -> Array:
    """y as it is. A training step moves the state to momentum * state + (1 - momentum) * observation.

    y must have influence on the loss. The observation has the shape of the state.
    """
    change = (1 - momentum) * (jax.lax.stop_gradient(observation.astype(jnp.float32)) - running_value(state))
    return _observed(y, state, change)


@jax.custom_vjp
def _observed(y: Array, state: Array, change: Array) -> Array:
    return y


def _observed_forward(y: Array, state: Array, change: Array) -> tuple[Array, Array]:
    sharding = jax.typeof(state).sharding
    return y, change if sharding.mesh.empty else reshard(change, sharding)


def _observed_backward(change: Array, dy: Array) -> tuple[Array, Array, None]:
    return dy, change, None


_observed.defvjp(_observed_forward, _observed_backward)
