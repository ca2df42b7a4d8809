"""Embeddings from characters: against loops, and from the spelling of a tokenizer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.catalogue.inputs.characters import PADDING, WORD_END, WORD_START

CONFIG = tfm.override(
    tfm.Config(layers=1, heads=2, width=8, ffn=8, vocab=4, pad_vocab_to=4, init_std=0.5, dropout=0.0),
    {"input": "characters", "input.size": 3, "input.length": 6, "input.filters": "1x2,3x4", "input.width": 4}
    | {"tie_embeddings": False, "position": "none"},
)
WORDS, INNER = ["cat", "s", "é", "elephants"], [False, True, False, False]


@pytest.fixture(scope="module")
def tables():
    params = random_params(tfm.embed_specs(CONFIG))
    return params.spelled(WORDS, INNER)


def test_spelling(tables):
    expected = [
        [WORD_START, *b"cat", WORD_END, PADDING],
        [*b"s", WORD_END, *[PADDING] * 4],
        [WORD_START, *"é".encode(), WORD_END, PADDING, PADDING],
        [WORD_START, *b"elep", WORD_END],
    ]
    np.testing.assert_array_equal(tables.spelling, expected)


def test_embeddings(tables):
    """Kim et al. 2016, section 3: filters, the maximum of each, highways; then a map, twice side by side."""
    tokens = jnp.array([[0, 1, 2], [3, 3, 0]])
    actual = jax.jit(lambda tables, tokens: tfm.embed(tables, CONFIG, tokens))(tables, tokens)
    tree = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tables)
    for b, t in np.ndindex(2, 3):
        characters = tree.characters[tree.spelling[tokens[b, t]].astype(int)]
        features = []
        for layer in tree.filters:
            width, _, count = layer.kernel.shape
            for o in range(count):
                places = range(len(characters) - width + 1)
                sums = [(characters[place : place + width] * layer.kernel[:, :, o]).sum() for place in places]
                features.append(max(0.0, max(sums) + layer.bias[o]))
        y = np.array(features)
        for layer in tree.highways:
            carry = 1 / (1 + np.exp(-(y @ layer.carry.kernel + layer.carry.bias)))
            y = carry * y + (1 - carry) * np.maximum(0, y @ layer.transform.kernel + layer.transform.bias)
        y = y @ tree.projection.kernel + tree.projection.bias
        np.testing.assert_allclose(actual[b, t], np.concatenate([y, y]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"input.filters": "3y4"}, "filters=3y4 must be WIDTHxCOUNT"),
        ({"input.filters": "7x4"}, "with widths up to length=6"),
        ({"tie_embeddings": True}, "has no table of tokens to share; add tie_embeddings=false"),
        ({"input.width": 3}, "input.width=3 must divide width=8"),
    ],
)
def test_options_that_do_not_fit_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        tfm.override(CONFIG, values)
