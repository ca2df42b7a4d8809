import dataclasses
import math
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.catalogue.positions.disentangled import bucket_of, prepare

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.override(
    tfm.Config(layers=2, heads=4, kv_heads=2, width=16, ffn=24, vocab=60, pad_vocab_to=64, length=12, dropout=0.0),
    {"input.token_types": None, "position": "disentangled", "position.norm": True},
    {"position.buckets": 8, "position.max_distance": 5},
)
TOKENS = jnp.array([[5, 59, 0, 7, 7, 31], [1, 2, 3, 4, 5, 6]])
CONTEXT = tfm.AttentionContext(jnp.arange(6)[None], record=True)

stack = jax.jit(tfm.stack, static_argnums=1)


def weights_of(model, config, x, key=None):
    """float32 [L,B,K,G,T,S]."""
    outputs = tfm.by_layer(config, stack(model, config, x, CONTEXT, key=key)[1])
    return jnp.stack([output.weights for output in outputs])


@pytest.mark.parametrize(("span", "max_distance"), [(8, 30), (256, 512), (5, 29), (2, 9)])
def test_buckets_grow_with_the_distance(span, max_distance):
    """To half of the span one each, then ceil(log(d / mid) / log((max - 1) / mid) (mid - 1)) + mid."""
    mid = span // 2
    distances = range(-600, 601)
    rows = bucket_of(jnp.array(distances)[None], 2 * span, max_distance)[0]
    for distance, row in zip(distances, rows.tolist(), strict=True):
        size = abs(distance)
        if size > mid:
            exact = math.log(size / mid) / math.log((max_distance - 1) / mid) * (mid - 1)
            size = math.ceil(exact - 1e-9) + mid
        assert row == min(max(int(math.copysign(size, distance)) + span, 0), 2 * span - 1), distance


def test_buckets_of_one_distance_each():
    assert bucket_of(jnp.arange(-9, 10), 8, None).tolist() == [0] * 6 + [1, 2, 3, 4, 5, 6] + [7] * 7


@pytest.mark.slow
@pytest.mark.parametrize(
    "terms", [pytest.param("c2p", marks=pytest.mark.slow), pytest.param("p2c", marks=pytest.mark.slow), "c2p_p2c"]
)
@pytest.mark.parametrize("share_projections", [pytest.param(True, marks=pytest.mark.slow), False])
def test_scores_are_the_formula_of_the_paper(fill, terms, share_projections):
    """He et al. 2021, equation 4, for every head and pair of a layer; recorded weights are their softmax."""
    config = tfm.override(CONFIG, {"position.terms": terms, "position.share_projections": share_projections})
    model = jax.tree.map(lambda leaf: leaf * 0.5, fill(tfm.encoder_specs(config)))
    x = jax.device_put(np.float32(np.random.default_rng(1).normal(size=(2, 6, 16))))
    weights = weights_of(model, config, x)[0]
    (embedding,) = model.positions
    rows = np.asarray(tfm.layer_norm(embedding.norm, embedding.table, config.norm_eps), np.float64)
    np.testing.assert_allclose(prepare(tfm.LayerCall(config.position, config, embedding), CONTEXT), rows, rtol=1e-6)
    layer = jax.tree.map(itemgetter(0), model.layers.period[0])
    attention, position = layer.mixer, layer.position
    assert (position.key is None) == (share_projections or "c2p" not in terms)
    assert (position.query is None) == (share_projections or "p2c" not in terms)

    def project(linear, states):
        kernel, bias = np.asarray(linear.kernel).reshape(16, -1, 4), np.asarray(linear.bias).reshape(-1, 4)
        return np.einsum("...d,dnh->...nh", states, kernel) + bias

    q, k = project(attention.query, np.asarray(x)), project(attention.key, np.asarray(x))
    pos_q = project(position.query or attention.query, rows)
    pos_k = project(position.key or attention.key, rows)
    bucket = {distance: int(bucket_of(jnp.array([distance]), 8, 5)[0]) for distance in range(-5, 6)}
    scale = math.sqrt(4 * (1 + len(terms.split("_"))))
    for b, n, i in np.ndindex(2, 4, 6):
        scores = []
        for j in range(6):
            row, score = bucket[i - j], q[b, i, n] @ k[b, j, n // 2]
            score += q[b, i, n] @ pos_k[row, n // 2] if "c2p" in terms else 0
            score += pos_q[row, n] @ k[b, j, n // 2] if "p2c" in terms else 0
            scores.append(score / scale)
        expected = np.exp(scores - np.max(scores)) / np.exp(scores - np.max(scores)).sum()
        np.testing.assert_allclose(weights[b, n // 2, n % 2, i], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_order_matters_through_distances_alone():
    config = dataclasses.replace(CONFIG, init_std=0.3)
    model, order = random_params(tfm.encoder_specs(config)), np.array([3, 1, 5, 0, 2, 4])
    states = jax.jit(lambda model, tokens: tfm.encoder(model, config, tokens))
    assert not np.allclose(states(model, TOKENS[:, order]), states(model, TOKENS)[:, order], atol=1e-2)
    flat = dataclasses.replace(model, positions=jax.tree.map(jnp.zeros_like, model.positions))
    np.testing.assert_allclose(states(flat, TOKENS[:, order]), states(flat, TOKENS)[:, order], rtol=1e-5, atol=1e-5)


def test_absolute_positions_may_be_added_too(fill):
    """The first DeBERTa of some checkpoints: rows of a table as learned positions have them."""
    config = tfm.override(CONFIG, {"position.absolute": True, "input.norm": False})
    tables = fill(tfm.embed_specs(config))
    assert tables.positions.shape == (12, 16)
    assert tfm.embed_specs(CONFIG).positions is None
    assert (config.max_length, CONFIG.max_length) == (12, None)
    expected = tables.tokens[TOKENS] + tables.positions[:6][None]
    np.testing.assert_allclose(tfm.embed(tables, config, TOKENS), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_dropout_falls_on_the_rows_too():
    """The weights of the first layer, before which nothing else is dropped, depend on the key."""
    config = dataclasses.replace(CONFIG, dropout=0.5, attn_dropout=0.0, layers=1, init_std=0.3)
    model = random_params(tfm.encoder_specs(config))
    x = jnp.ones((1, 6, 16))
    first, same, different = (weights_of(model, config, x, jax.random.key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, different)


def test_a_decoder_is_refused(fill):
    model = fill(tfm.causal_lm_specs(CONFIG))
    message = "disentangled is for encoders, and this is a decoder; try position=rotary"
    with pytest.raises(ValueError, match=f"^{message}"):
        tfm.causal_lm(model, CONFIG, TOKENS)
