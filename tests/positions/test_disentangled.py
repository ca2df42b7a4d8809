import dataclasses
import math
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.models.encoder import placed
from tfm.positions.disentangled import bucket_of, distance_rows

pytestmark = pytest.mark.usefixtures("strict", "quick")

CONFIG = tfm.Config(
    layers=2, heads=4, kv_heads=2, width=16, ffn=24, vocab=60, vocab_multiple=64, length=12, position="none", token_types=0, dropout=0.0,
    relative="c2p_p2c", relative_norm=True, buckets=8, bucket_distance=5,
)  # fmt: skip
TOKENS = jnp.array([[5, 59, 0, 7, 7, 31], [1, 2, 3, 4, 5, 6]])


@pytest.mark.parametrize(("span", "far"), [(8, 30), (256, 512), (5, 29), (2, 9)])
def test_buckets_grow_with_the_distance(span, far):
    """As they are to half of the span, then ceil(log(d / mid) / log((far - 1) / mid) (mid - 1)) + mid, and never beyond the table."""
    mid = span // 2
    distances = range(-600, 601)
    found = bucket_of(jnp.array(distances)[None], 2 * span, far)[0]
    for distance, row in zip(distances, found.tolist(), strict=True):
        size = abs(distance)
        if size > mid:
            exact = math.log(size / mid) / math.log((far - 1) / mid) * (mid - 1)
            size = math.ceil(exact - 1e-9) + mid
        assert row == min(max(int(math.copysign(size, distance)) + span, 0), 2 * span - 1), distance


def test_buckets_of_one_distance_each():
    assert bucket_of(jnp.arange(-9, 10), 8, 0).tolist() == [0] * 6 + [1, 2, 3, 4, 5, 6] + [7] * 7


@pytest.mark.parametrize("relative", ["c2p", "p2c", "c2p_p2c"])
@pytest.mark.parametrize("shared", [True, False])
def test_scores_are_the_formula_of_the_paper(fill, relative, shared):
    """He et al. 2021, equation 4, for every layer, head and pair; the weights that are recorded are their softmax."""
    config = dataclasses.replace(CONFIG, relative=relative, relative_shared=shared)
    model = jax.tree.map(lambda leaf: leaf * 0.5, fill(tfm.encoder_specs(config)))
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 6, 16)), jnp.float32)
    weights = tfm.stack(model, config, x, tfm.Recorded(**placed(model, config, jnp.arange(6)[None], both=True)))[1]
    rows = np.asarray(tfm.layer_norm(model.distances.norm, model.distances.table, config.norm_eps), np.float64)
    np.testing.assert_allclose(distance_rows(config, model.distances), rows, rtol=1e-6)
    attn = jax.tree.map(itemgetter(0), model.blocks.attn)
    assert (attn.place_key is None) == (shared or "c2p" not in relative)
    assert (attn.place_query is None) == (shared or "p2c" not in relative)

    def project(layer, states):
        return np.einsum("...d,dnh->...nh", states, np.asarray(layer.kernel).reshape(16, -1, 4)) + np.asarray(
            layer.bias
        ).reshape(-1, 4)

    q, k = project(attn.query, np.asarray(x)), project(attn.key, np.asarray(x))
    place_q, place_k = project(attn.place_query or attn.query, rows), project(attn.place_key or attn.key, rows)
    bucket = {distance: int(bucket_of(jnp.array([distance]), 8, 5)[0]) for distance in range(-5, 6)}
    scale = math.sqrt(4 * (1 + len(relative.split("_"))))
    for b, n, i in np.ndindex(2, 4, 6):
        scores = []
        for j in range(6):
            row, score = bucket[i - j], q[b, i, n] @ k[b, j, n // 2]
            score += q[b, i, n] @ place_k[row, n // 2] if "c2p" in relative else 0
            score += place_q[row, n] @ k[b, j, n // 2] if "p2c" in relative else 0
            scores.append(score / scale)
        expected = np.exp(scores - np.max(scores)) / np.exp(scores - np.max(scores)).sum()
        np.testing.assert_allclose(weights[0, b, n // 2, n % 2, i], expected, rtol=1e-4, atol=1e-5)


def test_order_matters_through_distances_alone():
    config = dataclasses.replace(CONFIG, init_std=0.3)
    model, order = tfm.init(tfm.encoder_specs(config), jax.random.key(0)), np.array([3, 1, 5, 0, 2, 4])
    states = jax.jit(lambda model, tokens: tfm.encoder(model, config, tokens))
    assert not np.allclose(states(model, TOKENS[:, order]), states(model, TOKENS)[:, order], atol=1e-2)
    flat = dataclasses.replace(model, distances=jax.tree.map(jnp.zeros_like, model.distances))
    np.testing.assert_allclose(states(flat, TOKENS[:, order]), states(flat, TOKENS)[:, order], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_dropout_falls_on_the_rows_too():
    """The weights of the first layer, before which no other dropout stands, depend on the key."""
    config = dataclasses.replace(CONFIG, dropout=0.5, attn_dropout=0.0, layers=1, init_std=0.3)
    model = tfm.init(tfm.encoder_specs(config), jax.random.key(0))
    x, way = jnp.ones((1, 6, 16)), tfm.Recorded(**placed(model, config, jnp.arange(6)[None], both=True))
    one, same, other = (tfm.stack(model, config, x, way, key=jax.random.key(n))[1] for n in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)


def test_a_decoder_and_a_way_without_distances_are_refused(fill):
    model = fill(tfm.causal_lm_specs(CONFIG))
    with pytest.raises(ValueError, match="relative=c2p_p2c is for encoders, and this is a decoder"):
        tfm.causal_lm(model, CONFIG, TOKENS)
    with pytest.raises(
        ValueError, match="relative=c2p_p2c needs a way of attending with distances, which tfm.placed gives it"
    ):
        tfm.stack(model.decoder, CONFIG, jnp.zeros((1, 6, 16)), tfm.Dense())
