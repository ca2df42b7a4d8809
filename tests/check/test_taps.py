"""Gradients for the inputs of blocks, against those of the function that runs behind each."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from train.check.taps import block_gradients


def block(scale, x):
    return jnp.tanh(scale * checkpoint_name(x, "block input")) + jnp.flip(x)


def test_gradients_are_those_of_what_follows():
    scales, x = jnp.array([0.5, 2.0, 1.5]), jnp.array([0.3, -0.2, 0.9])

    def loss(scales, x):
        for scale in scales:
            x = block(scale, x)
        return (x**3).sum()

    gradients = jax.jit(lambda *arguments: block_gradients(loss, *arguments))(scales, x)
    for layer, gradient in enumerate(gradients):
        rest, layer_input = scales[layer:], x
        for scale in scales[:layer]:
            layer_input = block(scale, layer_input)

        def named_path(named, rest=rest, plain=layer_input):
            y = jnp.tanh(rest[0] * named) + jnp.flip(plain)
            for scale in rest[1:]:
                y = block(scale, y)
            return (y**3).sum()

        np.testing.assert_allclose(gradient, jax.grad(named_path)(layer_input), rtol=1e-5)
    assert len(gradients) == 3


def test_a_function_without_blocks_has_none():
    assert block_gradients(lambda x: (x**2).sum(), jnp.ones(3)) == []
