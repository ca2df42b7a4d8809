"""Score biases that do more than add, against loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import tfm

pytestmark = pytest.mark.usefixtures("strict")

B, T, S, K, G, H, REACH = 2, 5, 7, 2, 3, 4, 2


def arrays():
    rng = np.random.default_rng(0)
    shapes = (B, T, K, G, H), (B, S, K, H), (B, S, K, H), (2 * REACH + 1, H)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


@struct.dataclass
class Shaw(tfm.ScoreBias):
    """Values of clipped distances (Shaw et al. 2018, eq. 3 and 4)."""

    table: jax.Array

    def __call__(self, i, j):
        return jnp.zeros((1, 1, 1, i.shape[1], j.shape[1]))

    def values(self, weights, i, j):
        distance = jnp.clip(j[:, None, :] - i[:, :, None], -REACH, REACH) + REACH
        rows = jnp.broadcast_to(self.table[distance], (len(weights), *weights.shape[-2:], H))
        return jnp.einsum("BKGTS,BTSH->BTKGH", weights, rows)


@struct.dataclass
class Squared(tfm.ScoreBias):
    """Scores times themselves and the distance."""

    def apply(self, scores, i, j):
        return scores**2 * (j[:, None, :] - i[:, :, None]).astype(jnp.float32)[:, None, None]


def test_a_bias_adds_unless_it_says_otherwise():
    q, k, _, _ = arrays()
    bias, scores = tfm.alibi(K * G, K), tfm.attention_scores(q, k)
    i, j = jnp.arange(T)[None], jnp.arange(S)[None]
    np.testing.assert_array_equal(bias.apply(scores, i, j), scores + bias(i, j))
    assert bias.values(scores, i, j) is None
    assert not bias.adds_values
    assert Shaw(jnp.zeros((5, H))).adds_values


def test_attention_applies_a_bias():
    q, k, _, _ = arrays()
    scores = np.einsum("btkgh,bskh->bkgts", q, k) / 2  # the root of H
    biased = scores**2 * (np.arange(S)[None] - np.arange(T)[:, None])
    expected = np.exp(biased) / np.exp(biased).sum(-1, keepdims=True)
    np.testing.assert_allclose(tfm.attention_weights(q, k, None, Squared()), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rate", [0.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_a_bias_may_change_the_weighted_sum_too(rate):
    """Each value has a row of its distance added to it, and dropped weights drop both."""
    q, k, v, table = arrays()
    key = jax.random.key(0)
    weights = tfm.dropout(tfm.attention_weights(q, k, tfm.causal()), rate, key)
    expected = np.zeros((B, T, K, G, H))
    for b, i, j, kv, g in np.ndindex(B, T, S, K, G):
        row = table[min(max(j - i, -REACH), REACH) + REACH]
        expected[b, i, kv, g] += float(weights[b, kv, g, i, j]) * (v[b, j, kv] + row)
    y = tfm.attend(q, k, v, tfm.causal(), Shaw(table), rate, key)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    halves = [jnp.asarray(x, jnp.bfloat16) for x in (q, k, v)]
    assert tfm.attend(*halves, tfm.causal(), Shaw(table)).dtype == jnp.bfloat16
