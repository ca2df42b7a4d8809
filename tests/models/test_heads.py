import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.Config(layers=1, heads=2, width=8, vocab=60, pad_vocab_to=64, length=8, dropout=0.0)
TOKENS = jnp.array([[5, 59, 0, 7, 7], [1, 2, 3, 4, 5]])
WHERE = jnp.array([[4, 0, 0], [1, 2, 3]])


encoder, masked_lm, masked_image, classify, classify_tokens, mlm_logits = (
    jax.jit(function, static_argnums=1)
    for function in (
        tfm.encoder, tfm.masked_lm, tfm.masked_image, tfm.classify, tfm.classify_tokens, tfm.mlm_logits
    )
)  # fmt: skip


def states(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("tie_embeddings", [True, False])
def test_mlm_logits(fill, tie_embeddings):
    """table . norm(gelu(x W + b)) + bias (Devlin's code: get_masked_lm_output)."""
    config = dataclasses.replace(CONFIG, tie_embeddings=tie_embeddings)
    model = fill(tfm.masked_lm_specs(config))
    head, table = model.head, model.encoder.embed.tokens
    assert (head.table is None) == tie_embeddings
    x = states(2, 3, 8)
    inner = x @ np.asarray(head.dense.kernel, np.float64) + np.asarray(head.dense.bias)
    inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
    mean, std = inner.mean(-1, keepdims=True), inner.std(-1, keepdims=True)
    normed = (inner - mean) / std * np.asarray(head.norm.scale) + np.asarray(head.norm.bias)
    expected = normed @ np.asarray(table if tie_embeddings else head.table).T + np.asarray(head.bias)
    logits = mlm_logits(head, config, x, table)
    np.testing.assert_allclose(logits[..., :60], expected[..., :60], rtol=1e-4, atol=1e-4)
    assert logits.dtype == jnp.float32


def test_the_head_has_a_bias_also_where_the_layers_have_none():
    head = tfm.masked_lm_specs(dataclasses.replace(CONFIG, bias=False)).head
    assert head.dense.bias.shape == (8,)
    assert head.bias.shape == (64,)


@pytest.mark.slow
def test_norm_and_no_bias_before_the_classes(fill):
    """output . norm(gelu(x W)) + bias, of each token and of the mean of the tokens (ModernBERT: Warner et al. 2024)."""
    head = tfm.Head(pool="mean", pool_activation="gelu", pool_norm=True, bias=False)
    config = dataclasses.replace(CONFIG, head=head, classes=3)
    assert tfm.masked_lm_specs(config).head.dense.bias is None
    classifier, tagger = fill(tfm.classifier_specs(config)), fill(tfm.tagger_specs(config, dense=True))
    assert classifier.pooler.bias is tagger.dense.bias is None
    hidden = np.asarray(encoder(classifier.encoder, config, TOKENS, tfm.padding(TOKENS > 0)), np.float64)
    text = np.stack([hidden[0][[0, 1, 3, 4]].mean(0), hidden[1].mean(0)])

    def expected(dense, norm, output, x):
        inner = x @ np.asarray(dense.kernel)
        inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        normed = (inner - inner.mean(-1, keepdims=True)) / inner.std(-1, keepdims=True) * np.asarray(
            norm.scale
        ) + np.asarray(norm.bias)
        return normed @ np.asarray(output.kernel) + np.asarray(output.bias)

    logits = classify(classifier, config, TOKENS, TOKENS > 0)
    np.testing.assert_allclose(
        logits, expected(classifier.pooler, classifier.norm, classifier.output, text), rtol=1e-4, atol=1e-4
    )
    tagger = dataclasses.replace(tagger, encoder=classifier.encoder)
    logits = classify_tokens(tagger, config, TOKENS, TOKENS > 0)
    np.testing.assert_allclose(logits, expected(tagger.dense, tagger.norm, tagger.output, hidden), rtol=1e-4, atol=1e-4)


def test_masked_lm_predicts_the_places_asked_for(fill):
    """Logits at `where` are those of all positions, gathered."""
    model = fill(tfm.masked_lm_specs(CONFIG))
    everywhere = jnp.broadcast_to(jnp.arange(5)[None], (2, 5))
    full = np.asarray(masked_lm(model, CONFIG, TOKENS, everywhere, tfm.causal()))
    some = masked_lm(model, CONFIG, TOKENS, WHERE, tfm.causal())
    assert some.dtype == jnp.float32
    for b in range(2):
        np.testing.assert_allclose(some[b], full[b, np.asarray(WHERE[b])], rtol=1e-5, atol=1e-5)
    hidden = encoder(model.encoder, CONFIG, TOKENS, tfm.causal())
    np.testing.assert_allclose(
        full, mlm_logits(model.head, CONFIG, hidden, model.encoder.embed.tokens), rtol=1e-5, atol=1e-5
    )


@pytest.mark.slow
def test_masked_lm_hands_on_positions_and_key(fill):
    config = dataclasses.replace(CONFIG, dropout=0.5)
    model = fill(tfm.masked_lm_specs(config))
    plain = masked_lm(model, config, TOKENS, WHERE)
    assert not np.allclose(plain, masked_lm(model, config, TOKENS, WHERE, positions=jnp.full((2, 5), 3)))
    assert not np.allclose(plain, masked_lm(model, config, TOKENS, WHERE, key=jax.random.key(0)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_that_pad_the_vocabulary_are_never_chosen(fill, dtype):
    """Also where they fit the state best and have the largest bias, and where all logits are very low."""
    config = dataclasses.replace(CONFIG, dtype=dtype)
    model = fill(tfm.masked_lm_specs(config))
    table = model.encoder.embed.tokens.at[60:].set(100.0)
    head = dataclasses.replace(model.head, bias=jnp.full(64, -1e5).at[60:].set(1e5))
    logits = mlm_logits(head, config, jnp.asarray(states(2, 3, 8), dtype), table)
    assert logits.dtype == jnp.float32
    assert (np.asarray(logits).argmax(-1) < 60).all()
    probabilities = np.asarray(jax.nn.softmax(logits, axis=-1))
    np.testing.assert_array_equal(probabilities[..., 60:], 0)
    np.testing.assert_allclose(probabilities[..., :60].sum(-1), 1, rtol=1e-5)
    gradient = jax.grad(
        lambda table: jax.nn.log_softmax(tfm.unembed(config, table, jnp.asarray(states(2, 3, 8), dtype)))[
            ..., :60
        ].sum()
    )(table)
    np.testing.assert_array_equal(gradient[60:], 0)


def test_unembed_without_padding():
    config = dataclasses.replace(CONFIG, vocab=64)
    table, x = states(64, 8), states(2, 3, 8)
    np.testing.assert_allclose(tfm.unembed(config, table, x), np.einsum("bmd,vd->bmv", x, table), rtol=1e-5, atol=1e-5)


def test_cross_entropy():
    logits, targets = states(2, 3, 7) * 5, np.array([[0, 6, 3], [2, 2, 5]])
    loss = tfm.cross_entropy(jnp.asarray(logits), jnp.asarray(targets))
    for b in range(2):
        for m in range(3):
            expected = -math.log(math.exp(logits[b, m, targets[b, m]]) / sum(math.exp(value) for value in logits[b, m]))
            assert float(loss[b, m]) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_cross_entropy_is_computed_in_float32():
    logits = jnp.asarray(states(2, 3, 7) * 5, jnp.bfloat16)
    targets = jnp.zeros((2, 3), jnp.int32)
    loss = tfm.cross_entropy(logits, targets)
    assert loss.dtype == jnp.float32
    np.testing.assert_array_equal(loss, tfm.cross_entropy(logits.astype(jnp.float32), targets))
    assert np.isfinite(tfm.cross_entropy(jnp.array([[[1e4, -1e4, -1e30]]]), jnp.array([[1]]))).all()


def test_a_head_that_knows_nothing_costs_the_logarithm_of_the_vocabulary():
    """The padded rows do not count."""
    config = CONFIG
    zeros = jax.tree.map(lambda spec: jnp.zeros(spec.shape), tfm.masked_lm_specs(config))
    loss = tfm.cross_entropy(masked_lm(zeros, config, TOKENS, WHERE), WHERE)
    np.testing.assert_allclose(loss, math.log(60), rtol=1e-6)


@pytest.mark.slow
def test_tags_are_an_output_for_each_token(fill):
    """Against the encoder and a product by hand; padding changes nothing."""
    config = dataclasses.replace(CONFIG, classes=3, dropout=0.0)
    for dense in (False, True):
        model = fill(tfm.tagger_specs(config, dense))
        tokens, valid = jnp.array([[5, 7, 9, 0]]), jnp.array([[True, True, True, False]])
        hidden = np.asarray(encoder(model.encoder, config, tokens, tfm.padding(valid)))
        if dense:
            inner = hidden @ np.asarray(model.dense.kernel) + np.asarray(model.dense.bias)
            hidden = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        expected = hidden @ np.asarray(model.output.kernel) + np.asarray(model.output.bias)
        logits = classify_tokens(model, config, tokens, valid)
        assert (logits.shape, logits.dtype) == ((1, 4, 3), jnp.float32)
        np.testing.assert_allclose(logits[:, :3], expected[:, :3], rtol=1e-4, atol=1e-4)
        alone = classify_tokens(model, config, tokens[:, :3])
        np.testing.assert_allclose(logits[:, :3], alone, rtol=1e-4, atol=1e-4)


def test_embeddings_may_be_narrower_than_layers(fill):
    config = tfm.override(CONFIG, {"input.width": 6})
    model = fill(tfm.masked_lm_specs(config))
    assert model.encoder.embed.tokens.shape == (config.padded_vocab, 6)
    tokens = jnp.array([[5, 7]])
    tables = jax.tree.map(np.asarray, model.encoder.embed)
    x = tables.tokens[tokens] + tables.positions[:2] + tables.types[0]
    x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True) * tables.norm.scale + tables.norm.bias
    x = x @ tables.projection.kernel + tables.projection.bias
    embedded = jax.jit(tfm.embed, static_argnums=1)(model.encoder.embed, config, tokens)
    np.testing.assert_allclose(embedded, x, rtol=1e-4, atol=1e-4)
    hidden = encoder(model.encoder, config, tokens)
    assert mlm_logits(model.head, config, hidden, model.encoder.embed.tokens).shape == (1, 2, config.padded_vocab)


@pytest.mark.slow
def test_visual_tokens_of_patches(fill):
    """norm(x) W + b of the states of patches; [CLS] has no token, and pixels of masked patches change nothing."""
    images = {"input": "patches", "input.size": 4, "input.patch": 2, "input.mask_token": True, "residual": "pre"}
    config = tfm.override(CONFIG, images | {"residual.final_norm": False})
    model = jax.tree.map(lambda leaf: 0.3 * leaf, fill(tfm.masked_image_specs(config)))
    assert model.encoder.norm is None
    pixels = jnp.asarray(states(2, 4, 4, 3))
    masked = jnp.array([[True, False, False, True], [False] * 4])
    logits = masked_image(model, config, pixels, masked)
    hidden = np.asarray(encoder(model.encoder, config, tfm.MaskedPixels(pixels, masked)), np.float64)[:, 1:]
    normed = (hidden - hidden.mean(-1, keepdims=True)) / hidden.std(-1, keepdims=True)
    normed = normed * np.asarray(model.norm.scale) + np.asarray(model.norm.bias)
    expected = normed @ np.asarray(model.output.kernel) + np.asarray(model.output.bias)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    assert (logits.shape, logits.dtype) == ((2, 4, 60), jnp.float32)
    slopes = jax.jit(jax.grad(lambda pixels: masked_image(model, config, pixels, masked)[..., 0].sum()))(pixels)
    by_patch = np.abs(slopes).reshape(2, 2, 2, 2, 2, 3).sum((2, 4, 5)).reshape(2, 4)
    assert (by_patch > 0).tolist() == (~masked).tolist()
