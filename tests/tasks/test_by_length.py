"""Rows read in batches of similar lengths are those read alone."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from train.tasks import by_length

LENGTH = 64
CONFIG = tfm.Config(layers=1, heads=2, width=8, ffn=16, vocab=50, length=LENGTH, classes=3, dropout=0.0)


def rows_of(sizes, seed=0):
    """Tokens of rows, and which places hold them."""
    valid = (np.arange(LENGTH) < np.asarray(sizes)[:, None]).astype(np.int32)
    return np.random.default_rng(seed).integers(1, 50, valid.shape, dtype=np.int32) * valid, valid


classify = jax.jit(tfm.classify, static_argnums=1)


def reader(shapes):
    """What classifies a batch, and notes its shape."""

    def read(params, config, tokens, valid):
        shapes.append(tokens.shape)
        return classify(params, config, jnp.asarray(tokens), jnp.asarray(valid > 0))

    return read


@pytest.mark.parametrize(
    ("options", "lengths"), [({}, [16, 16, 64, 64]), ({"mixer": "fnet", "mixer.reads_padding": True}, [64] * 4)]
)
def test_each_result_is_that_of_the_row_alone(options, lengths):
    """Where a mixer reads padding, every row keeps the length of training."""
    config = tfm.override(CONFIG, options)
    params = random_params(tfm.classifier_specs(config))
    tokens, valid = rows_of([40, 3, 16, 1, 9, 64, 20])
    shapes, counts = [], []
    results = by_length.read_by_length(reader(shapes), params, config, (tokens, valid), valid, 2, counts.append)
    assert shapes == [(2, length) for length in lengths]
    assert sum(counts) == len(tokens)
    for row, result in enumerate(results):
        place = slice(row, row + 1)
        np.testing.assert_allclose(result, reader([])(params, config, tokens[place], valid[place])[0], 1e-4, 1e-5)


def test_blocks_are_all_rows_in_order():
    blocks = list(by_length.blocks(by_length.BATCHES * 4 + 3, 2))
    assert [row for block in blocks for row in block] == list(range(by_length.BATCHES * 4 + 3))
    assert max(map(len, blocks)) == by_length.BATCHES * 2


def test_the_longest_of_several_texts_of_a_row_counts():
    """Rows of a choice have a text for each continuation."""
    tokens, valid = rows_of([3, 20, 2, 1])
    model = SimpleNamespace(kinds=())
    shapes = []

    def read(params, model, tokens):
        shapes.append(tokens.shape)
        return tokens.sum(-1)

    fields = tokens.reshape(2, 2, LENGTH)
    results = by_length.read_by_length(read, None, model, (fields,), valid.reshape(2, 2, LENGTH), 1, lambda count: None)
    assert shapes == [(1, 2, 16), (1, 2, 32)]
    np.testing.assert_array_equal(results, fields.sum(-1))
