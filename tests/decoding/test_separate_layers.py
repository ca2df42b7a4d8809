"""Models whose layers have arrays of their own write the same texts."""

import jax
import numpy as np
import pytest
from random_params import random_params

import tfm

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.Config(layers=3, heads=2, width=16, ffn=24, vocab=23, pad_vocab_to=1, length=32, dropout=0.0, init_std=0.5)
PROMPTS = [[5, 22, 0, 7], [3]]


def language_model(**values):
    config = tfm.override(CONFIG, values)
    return config, random_params(tfm.causal_lm_specs(config), 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        {"scan": False},
        {"scan": True},
        {"scan": False, "share_layers": True},
    ],
)
def test_texts_are_the_same(values):
    config, model = language_model(**values)
    separate = tfm.separate_layers(model, config)
    expected, actual = (tfm.generate(params, config, PROMPTS, 8) for params in (model, separate))
    assert actual.tokens == expected.tokens
    np.testing.assert_allclose(np.concatenate(actual.logprobs), np.concatenate(expected.logprobs), 1e-5, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("values", [{"scan": False}, {"scan": True}, {"scan": False, "share_layers": True}])
def test_beams_are_the_same(values):
    config, model = language_model(**values)
    separate = tfm.separate_layers(model, config)
    beams = [tfm.beam_search(params, config, PROMPTS, 8, tfm.Beam(3)) for params in (model, separate)]
    assert [[text.tokens for text in group] for group in beams[0]] == [
        [text.tokens for text in group] for group in beams[1]
    ]


def test_each_layer_has_its_array_where_layers_are_unrolled():
    config, model = language_model(scan=False)
    stacked = model.decoder.layers.period[0].mixer.query.kernel
    kernels = tfm.separate_layers(model, config).decoder.layers.period[0].mixer.query.kernel.rows
    assert len(kernels) == CONFIG.layers
    for layer, kernel in enumerate(kernels):
        np.testing.assert_array_equal(kernel, stacked[layer])
    again = tfm.separate_layers(tfm.separate_layers(model, config), config)
    assert jax.tree.structure(again) == jax.tree.structure(tfm.separate_layers(model, config))


def test_a_scan_keeps_its_stacked_leaves():
    config, model = language_model(scan=True)
    assert jax.tree.structure(tfm.separate_layers(model, config)) == jax.tree.structure(model)


@pytest.mark.slow
def test_both_sides_of_a_translation():
    config = tfm.override(CONFIG, {"scan": False})
    params = random_params(tfm.seq2seq_specs(config), 2)
    separate = tfm.separate_layers(params, config)
    source = np.array([[4, 9, 1, 2]], np.int32)
    texts = [
        tfm.generate(tfm.encode_source(model, config, source), config, [[1]], 8).tokens for model in (params, separate)
    ]
    assert texts[0] == texts[1]
    assert len(separate.encoder.layers.period[0].mixer.query.kernel.rows) == CONFIG.layers
