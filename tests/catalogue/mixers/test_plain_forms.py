"""Mixers of long texts against their plain forms, which compare every pair of tokens: values and whole gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params
from variants import VARIANTS

import tfm

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]

NEAR = {"rtol": 1e-5, "atol": 1e-5}
SMALL = {"width": 8, "ffn": 8, "head_size": 4}
X, COTANGENT = np.random.default_rng(2).normal(size=(2, 1, 8, 8)).astype(np.float32)

CLUSTERED = ["reformer", "reformer_across", "routing", "routing_window", "sinkhorn"]
FEWER_KEYS = ["compressed", "linformer", "nystrom"]
KERNELS = ["performer", "linear", "aft", "aft_local", "aft_simple", "delta", "xca"]
NAMES = [*CLUSTERED, *FEWER_KEYS, *KERNELS, "fnet"]
ROWS = [
    (name, causal)
    for name in NAMES
    for causal in (False, True)
    if (VARIANTS[name].decoder if causal else VARIANTS[name].encoder)
]


def slopes(function, tree):
    """The derivatives of a function of float64 arrays for every element, by central differences."""
    tree = jax.tree.map(lambda leaf: np.array(leaf, np.float64), tree)
    step, gradient = 1e-6, jax.tree.map(np.zeros_like, tree)
    for leaf, slope in zip(*map(jax.tree.leaves, (tree, gradient)), strict=True):
        for index in np.ndindex(leaf.shape):
            value = leaf[index]
            leaf[index] = value + step
            above = function(tree)
            leaf[index] = value - step
            slope[index] = (above - function(tree)) / (2 * step)
            leaf[index] = value
    return gradient


def label(value):
    """The names of the two parameters of a test."""
    return {True: "decoder", False: "encoder"}.get(value, value)


@pytest.mark.parametrize(("name", "causal"), ROWS, ids=label)
def test_values_and_gradients_are_those_of_the_plain_form(name, causal):
    """Gradients of the states and of every trained parameter; the plain form by numpy in float64."""
    row, config = VARIANTS[name], tfm.override(VARIANTS[name].config, SMALL)
    mixer = tfm.mixer_of(config.mixer)
    specs = mixer.specs(config.mixer, config)
    params = random_params(specs)
    context = tfm.AttentionContext(jnp.arange(8)[None], causal=causal)
    options = {"causal": True} if causal and row.encoder else {}

    @jax.jit
    def value_and_gradient(inputs):
        def loss(inputs):
            call = tfm.LayerCall(
                config.mixer, config, inputs[0], mixer.prepare(tfm.LayerCall(config.mixer, config), context), None
            )
            y = mixer.forward(call, inputs[1], lambda q, k, projections: (q, k, None), None)[0]
            return (y * COTANGENT).sum(), y

        (_, y), gradient = jax.value_and_grad(loss, has_aux=True)(inputs)
        return y, gradient

    y, gradient = value_and_gradient((params, X))
    np.testing.assert_allclose(y, row.oracle(params, X.astype(np.float64), **options), **NEAR)
    expected = slopes(lambda inputs: (row.oracle(*inputs, **options) * COTANGENT).sum(), (params, X))
    trained = jax.tree_util.tree_leaves_with_path((tfm.trained_mask(specs), True))
    for leaf, reference, (path, is_trained) in zip(*map(jax.tree.leaves, (gradient, expected)), trained, strict=True):
        if is_trained:
            np.testing.assert_allclose(leaf, reference, **NEAR)
            # A bias of all keys may cancel; nothing else may be without influence, or nothing would be compared.
            assert np.abs(reference).max() > 1e-2 or jax.tree_util.keystr(path).endswith(".bias")
