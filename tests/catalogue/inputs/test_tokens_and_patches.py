"""Tokens of a text and patches of an image as one sequence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from random_params import random_params

import tfm

CONFIG = tfm.override(
    tfm.Config(layers=2, heads=2, width=8, vocab=20, pad_vocab_to=1, length=3, classes=4, dropout=0.0),
    {"input": "tokens_and_patches", "input.size": 4, "input.patch": 2, "input.channels": 1, "residual": "pre"},
)
TOKENS = np.array([[3, 7, 5], [1, 2, 0]], np.int32)
PIXELS = np.random.default_rng(0).normal(size=(2, 4, 4, 1)).astype(np.float32)
BOTH = tfm.PicturedTokens(jnp.asarray(TOKENS), jnp.asarray(PIXELS))


def test_the_embeddings_are_rows_of_the_table_and_maps_of_patches():
    params = random_params(tfm.classifier_specs(CONFIG))
    embed = jax.tree.map(np.asarray, params.encoder.embed)
    squares = PIXELS.reshape(2, 2, 2, 2, 2, 1).swapaxes(2, 3).reshape(2, 4, 4)
    patches = squares @ embed.projection.kernel.reshape(4, 8) + embed.projection.bias
    expected = np.concatenate([embed.tokens[TOKENS], patches], 1) + embed.positions[None]
    np.testing.assert_allclose(tfm.embed(params.encoder.embed, CONFIG, BOTH), expected, atol=1e-6)
    assert CONFIG.max_length == 3 + 4


@pytest.mark.slow
def test_what_is_masked_changes_nothing():
    """The answer without a picture, by a mask, is that of another picture; and so for words."""
    params = random_params(tfm.classifier_specs(CONFIG))
    classify = jax.jit(tfm.classify, static_argnums=1)
    for hidden, replaced in (
        (np.s_[:, 3:], tfm.PicturedTokens(BOTH.tokens, BOTH.pixels + 1)),
        (np.s_[:, 1:3], tfm.PicturedTokens(BOTH.tokens.at[:, 1:].set(9), BOTH.pixels)),
    ):
        valid = np.ones((2, 7), bool)
        valid[hidden] = False
        masked = classify(params, CONFIG, BOTH, valid)
        np.testing.assert_allclose(classify(params, CONFIG, replaced, valid), masked, atol=1e-6)
        assert np.abs(classify(params, CONFIG, replaced) - classify(params, CONFIG, BOTH)).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 2, 2, 1), (2, 1, 2, 2)])
def test_on_a_mesh(shape):
    params = random_params(tfm.classifier_specs(CONFIG))
    classify, both = jax.jit(tfm.classify, static_argnums=1), jax.tree.map(lambda x: jnp.concatenate([x, x]), BOTH)
    expected, mesh = classify(params, CONFIG, both), tfm.make_mesh(*shape)
    with jax.set_mesh(mesh):
        sharded = jax.device_put(params, tfm.shardings(tfm.classifier_specs(CONFIG), mesh))
        rows = NamedSharding(mesh, tfm.partition("B", (4,), mesh))
        logits = classify(sharded, CONFIG, jax.device_put(both, rows))
    np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (BOTH.tokens, r"inputs must be tfm.PicturedTokens\(tokens, pixels\), not "),
        (tfm.PicturedTokens(BOTH.tokens, BOTH.pixels[:, :2]), r"pixels must have the shape \[B,4,4,1\]"),
        (tfm.PicturedTokens(BOTH.pixels, BOTH.pixels), "tokens must be integers"),
    ],
)
def test_bad_inputs(inputs, sentence):
    params = tfm.abstract(tfm.classifier_specs(CONFIG))
    with pytest.raises(ValueError, match=sentence):
        jax.eval_shape(lambda params: tfm.classify(params, CONFIG, inputs), params)


def test_bad_sizes():
    with pytest.raises(ValueError, match="size=5 must be a multiple of patch=2; try size=4"):
        tfm.override(CONFIG, {"input.size": 5})
