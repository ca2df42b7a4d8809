"""The first layers as a model, causal classifiers that read them, and tokens that are never predicted."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.ops import quick_gelu

BASE = {
    "layers": 5,
    "width": 8,
    "heads": 2,
    "ffn": 16,
    "vocab": 11,
    "length": 6,
    "pad_vocab_to": 4,
    "dropout": 0.0,
    "residual": "pre",
    "norm": "rms",
    "input.norm": False,
    "input.token_types": None,
    "tie_embeddings": False,
    "classes": 3,
    "activation": "quick_gelu",
    "head.causal": True,
    "head.pool": "mean",
    "head.dense": False,
    "head.input_only": 1,
    "init_std": 0.5,
}
KINDS = {
    "plain": {},
    "periods": {"period": 2, "period.1.mixer": "softmax", "period.1.mixer.pattern": "sliding"},
    "prefix": {"prefix": 1, "prefix.0.position": "rotary", "period": 2, "period.1.position": "alibi"},
}
TOKENS = jax.device_put(np.int32(np.random.default_rng(0).integers(0, 11, (2, 6))))


decoder = jax.jit(tfm.decoder, static_argnums=1)


def model(specs, **changes):
    """A configuration and parameters none of which are 0 or 1."""
    config = tfm.override(tfm.Config(), {**BASE, **changes})
    params = random_params(specs(config))
    rng = np.random.default_rng(1)
    return config, jax.tree.map(lambda leaf: leaf + rng.normal(0, 0.2, leaf.shape).astype(np.float32), params)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "periods", "prefix"])
def test_states_are_those_between_layers(kind):
    config, params = model(tfm.causal_lm_specs, **KINDS[kind])
    hidden_states = jax.jit(lambda params: tfm.hidden_states(params, config, TOKENS, causal=True))
    states = hidden_states(params.decoder)
    blocks = [tfm.first_layers(params.decoder, config, count) for count in range(1, 6)]
    assert [part_config.layers for _, part_config in blocks] == [1, 2, 3, 4, 5]
    for count, (part, part_config) in enumerate(blocks[:-1], 1):
        x = np.asarray(states[count], np.float64)
        expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_eps) * np.asarray(part.norm.scale)
        np.testing.assert_allclose(decoder(part, part_config, TOKENS), expected, atol=1e-5)
    np.testing.assert_allclose(decoder(*blocks[-1], TOKENS), states[-1], atol=1e-6)
    with pytest.raises(ValueError, match="layer=6 of 5 layers cannot be read; choose 1 to 5"):
        tfm.first_layers(params.decoder, config, 6)


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("plain", 3),
        ("plain", 1),
        ("periods", 4),
        *(pytest.param(kind, 5, marks=pytest.mark.slow) for kind in ("plain", "prefix")),
    ],
)
def test_layers_at_equal_distances(kind, count):
    """Each chosen layer does what it did: the states are those of its blocks in a loop."""
    config, params = model(tfm.causal_lm_specs, **KINDS[kind], layers=8 if kind == "periods" else 5)
    if kind == "periods":
        with pytest.raises(ValueError, match="layers=4 of 8 are of other kinds than a model of 4 layers has"):
            tfm.spaced_layers(params.decoder, config, 4)
        return
    part, part_config = tfm.spaced_layers(params.decoder, config, count)
    specs = tfm.causal_lm_specs(part_config).decoder
    assert jax.tree.map(jnp.shape, part) == jax.tree.map(lambda spec: spec.shape, specs)
    chosen = [index * 5 // count for index in range(count)]
    names = jax.tree.leaves(jax.tree.map(lambda *_: 0, part.layers))
    assert len(names) == len(jax.tree.leaves(specs.layers))
    if kind == "plain":
        for leaf, source in zip(
            jax.tree.leaves(part.layers.period), jax.tree.leaves(params.decoder.layers.period), strict=True
        ):
            np.testing.assert_array_equal(leaf, np.asarray(source)[chosen])
    if count == 5:
        np.testing.assert_array_equal(decoder(part, part_config, TOKENS), decoder(params.decoder, config, TOKENS))


def test_no_layers_at_equal_distances():
    config, params = model(tfm.causal_lm_specs)
    with pytest.raises(ValueError, match="layers=6 cannot be taken from 5 layers; choose 1 to 5"):
        tfm.spaced_layers(params.decoder, config, 6)


def test_the_norm_is_that_of_the_next_layer():
    config, params = model(tfm.causal_lm_specs)
    part, _ = tfm.first_layers(params.decoder, config, 2)
    np.testing.assert_array_equal(part.norm.scale, params.decoder.layers.period[0].residual.mixer.scale[2])


@pytest.mark.slow
@pytest.mark.parametrize("layer", [None, 2])
def test_a_causal_classifier_reads_the_mean_of_a_decoder(layer):
    config, params = model(tfm.classifier_specs, **{"head.layer": layer})
    assert params.output.bias is None
    states = decoder(*tfm.first_layers(params.encoder, config, layer or 5), TOKENS)
    expected = np.asarray(states, np.float64).mean(1) @ np.asarray(params.output.kernel, np.float64)
    logits = jax.jit(tfm.classify, static_argnums=1)(params, config, TOKENS)
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_a_layer_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"head.layer=6 must be one of the layers=5"):
        tfm.override(tfm.Config(), {**BASE, "head.layer": 6})


def test_tokens_that_are_only_read_have_no_probability():
    """Logits and losses are those of the other tokens alone, as a loop computes them."""
    config, params = model(tfm.causal_lm_specs)
    assert (config.outputs, config.padded_vocab, params.table.shape) == (10, 12, (12, 8))
    assert tfm.count_params(tfm.causal_lm_specs(config).table) == 10 * 8
    hidden = decoder(params.decoder, config, TOKENS)
    logits = np.asarray(jax.jit(tfm.next_logits, static_argnums=1)(params, config, hidden), np.float64)
    assert (logits[..., 10:] < -1e9).all()
    targets, weights = TOKENS % 10, jnp.asarray([[1, 1, 1, 0, 1, 2], [0, 1, 1, 1, 1, 1]], jnp.float32)

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def loss(table):
        return tfm.vocabulary_loss(config, table, hidden, targets, weights)[:2]

    (total, losses), gradient = loss(params.output)
    expected = 0.0
    for row, place in np.ndindex(TOKENS.shape):
        values = np.asarray(params.table, np.float64)[:10] @ np.asarray(hidden[row, place], np.float64)
        loss = np.log(np.exp(values).sum()) - values[targets[row, place]]
        assert losses[row, place] == pytest.approx(loss, abs=1e-4)
        expected += loss * weights[row, place]
    assert float(total) == pytest.approx(float(expected), rel=1e-5)
    assert (np.asarray(gradient)[10:] == 0).all()


@pytest.mark.slow
def test_no_token_that_is_only_read_is_sampled_and_a_text_fills_all_positions():
    config, params = model(tfm.causal_lm_specs)
    generated = tfm.generate(params, config, [[10], [10]], 6, tfm.Sample(temperature=50.0, seed=np.arange(2)))
    assert [len(tokens) for tokens in generated.tokens] == [6, 6]
    assert max(max(tokens) for tokens in generated.tokens) < 10
    causal_lm = jax.jit(tfm.causal_lm, static_argnums=1)
    for tokens, logprobs in zip(generated.tokens, generated.logprobs, strict=True):
        logits = np.float64(causal_lm(params, config, jnp.asarray([[10, *tokens[:-1]]]))[0])
        expected = logits[np.arange(6), tokens] - np.log(np.exp(logits).sum(-1))
        np.testing.assert_allclose(logprobs, expected, atol=1e-4)


def test_quick_gelu():
    x = np.linspace(-4, 4, 9)
    np.testing.assert_allclose(quick_gelu(jnp.asarray(x, jnp.float32)), x / (1 + np.exp(-1.702 * x)), atol=1e-6)
