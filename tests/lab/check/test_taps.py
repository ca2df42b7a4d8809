"""Gradients for the inputs of blocks, against those of the function that runs behind each."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from train.lab.check.taps import block_gradients


def block(scale, x):
    return jnp.tanh(scale * checkpoint_name(x, "block input")) + jnp.flip(x)


def test_gradients_are_those_of_what_follows():
    scales, x = jnp.array([0.5, 2.0, 1.5]), jnp.array([0.3, -0.2, 0.9])

    def loss(scales, x):
        for scale in scales:
            x = block(scale, x)
        return (x**3).sum()

    gradients = jax.jit(lambda *arguments: block_gradients(*arguments, ["x"])["x"], static_argnums=0)(
        lambda scales, batch: loss(scales, batch["x"]), scales, {"x": x}
    )
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
    batch = {"x": jnp.ones(3)}
    assert block_gradients(lambda params, batch: (batch["x"] ** 2).sum(), (), batch, ["x"]) == {"x": []}


def test_blocks_belong_to_the_field_that_their_stack_reads():
    """Three stacks, the second of which is given what the first has made."""
    batch = {"a": jnp.array([0.3, -0.2]), "b": jnp.array([0.1, 0.7]), "positions": jnp.ones(2)}

    def three_stacks(scale, batch):
        memory = block(scale, block(scale, batch["b"] + batch["positions"]))
        x = block(scale, batch["a"] * batch["positions"])
        x = block(scale, x + memory)
        return x.sum() + block(scale, batch["b"]).sum()

    gradients = block_gradients(three_stacks, jnp.float32(0.5), batch, ["a", "b"])
    assert {name: len(blocks) for name, blocks in gradients.items()} == {"a": 2, "b": 3}
