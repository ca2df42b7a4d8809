"""BigBird as transformers evaluates it: it depends on the length of a row."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogue.patterns.test_kernel_path import values_and_gradients
from oracles.patterns import bigbird_of_folders
from random_params import random_params
from variants import BASE

import tfm
from tfm.attention.kernels import block_sizes, passes
from tfm.catalogue.options.patterns import BigBird
from tfm.catalogue.patterns import bigbird
from tfm.mixers.softmax import pattern_mask

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]

ROW = {
    "mixer.pattern": "bigbird", "mixer.pattern.block": 4, "mixer.pattern.window": 3, "mixer.pattern.global_blocks": 1,
    "mixer.pattern.random": 2, "mixer.pattern.last_blocks": 1, "mixer.pattern.draw": "first",
    "mixer.pattern.dense_blocks": 9,
}  # fmt: skip
CONFIG = tfm.override(dataclasses.replace(BASE, length=64), ROW)
OPTIONS = CONFIG.mixer.pattern


def context_of(length):
    return tfm.AttentionContext(jnp.arange(length)[None], restarts=False)


@pytest.mark.parametrize("length", [36, 37, 45])
def test_rows_of_several_lengths(length):
    """Short rows are dense; the last block is that of the row, and may be shorter."""
    mixer = tfm.mixer_of(CONFIG.mixer)
    params = random_params(mixer.specs(CONFIG.mixer, CONFIG))
    x = np.random.default_rng(0).normal(size=(2, length, CONFIG.width)).astype(np.float32)
    prepared = mixer.prepare(tfm.LayerCall(CONFIG.mixer, CONFIG), context_of(length))
    call = tfm.LayerCall(CONFIG.mixer, CONFIG, params, prepared, None)
    y, _ = mixer.forward(call, jnp.asarray(x), lambda q, k, projections: (q, k, None), None)
    np.testing.assert_allclose(y, bigbird_of_folders(ROW)(params, x.astype(np.float64)), rtol=1e-4, atol=1e-5)
    assert (prepared.mask is None) == (length == 36)


def test_chunks_agree_with_dense_attention(monkeypatch):
    """Values and gradients, also with a bias of positions before that of the first block."""
    monkeypatch.setattr(block_sizes, "SMALLEST", 4)
    monkeypatch.setattr(block_sizes, "SCORES", {"cpu": 1})
    mask = pattern_mask(OPTIONS, CONFIG, context_of(45))
    for position_bias in (None, tfm.alibi(4, 2)):
        call = tfm.LayerCall(OPTIONS, CONFIG, None, context_of(45), None)
        bias = bigbird.PATTERN.bias(call, None, position_bias)
        actual, expected = (values_and_gradients(kernel, mask, bias) for kernel in (tfm.chunked, tfm.attend))
        for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        without, *_ = values_and_gradients(tfm.attend, mask, position_bias)
        assert not np.allclose(without, expected[0], atol=1e-2)


def test_twice_the_length_is_twice_the_pairs():
    options = dataclasses.replace(OPTIONS, block=64)
    config = dataclasses.replace(CONFIG, length=16384)
    pairs = {}
    for length in (8192, 16384):
        parts = passes.passes(pattern_mask(options, config, context_of(length)), length, length)
        pairs[length] = passes._pairs(parts, length)
    assert pairs[16384] < 2.1 * pairs[8192]


def test_random_blocks_are_not_last_ones():
    options = dataclasses.replace(OPTIONS, draw="seeded", last_blocks=2)
    table = np.array(bigbird.random_blocks(options, 80, False))
    assert table.max() == 17
    assert not pattern_mask(options, CONFIG, context_of(64)).dense(64).all()


def test_what_is_refused():
    with pytest.raises(ValueError, match="global_blocks=0 must be at least 1 for draw=first"):
        BigBird(global_blocks=0, draw="first")
    assert not CONFIG.reads_packed
    assert CONFIG.max_length == 64
    params, tokens = tfm.abstract(tfm.encoder_specs(CONFIG)), jax.ShapeDtypeStruct((1, 8), jnp.int32)
    decode = lambda params, tokens: tfm.decoder(params, CONFIG, tokens)
    packed = lambda params, tokens: tfm.encoder(params, CONFIG, tokens, tfm.segments(tokens))
    for function in (decode, packed):
        with pytest.raises(
            tfm.VariantError, match="bigbird with last_blocks, draw=first or dense_blocks reads one text"
        ):
            jax.eval_shape(function, params, tokens)
