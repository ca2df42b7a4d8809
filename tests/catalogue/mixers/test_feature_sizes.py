"""Sums of features where keys differ in size by more than float32 can hold."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfm.catalogue.mixers import kernels

LENGTH, FEATURES, SIZE, CHUNK = 12, 6, 4, 5
SEGMENTS = np.array([[0] * 4 + [1] * 8])


def rows_of(seed, growth):
    """Logarithms of features of queries and keys, and values; keys grow, or shrink, from left to right."""
    rng = np.random.default_rng(seed)
    log_q = rng.normal(size=(1, LENGTH, 1, 2, FEATURES))
    log_k = rng.normal(size=(1, LENGTH, 1, FEATURES)) + growth * np.arange(LENGTH)[None, :, None, None]
    return log_q, log_k, rng.normal(size=(1, LENGTH, 1, SIZE))


def by_softmax(log_q, log_k, v, seen):
    """The same by logarithms of sums over features, in float64."""
    pairs = np.logaddexp.reduce(log_q[0, :, 0, :, None] + log_k[0, None, None, :, 0], axis=-1)  # [T,G,S]
    scores = np.where(seen[:, None], pairs, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("TGS,SH->TGH", weights / weights.sum(-1, keepdims=True), v[0, :, 0])[None, :, None]


@partial(jax.jit, static_argnums=0)
def sums(causal, segments, *rows):
    """What the kernels compute of rows."""
    if causal:
        return kernels.causal_sums(*rows, segments, None, CHUNK)[0]
    return kernels.all_sums(*rows) if segments is None else kernels.segment_sums(*rows, segments, CHUNK)


@pytest.mark.parametrize("segments", [None, SEGMENTS])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("growth", [0, 60, -60])
def test_a_large_key_does_not_hide_those_that_a_query_sees(growth, segments, causal):
    rows = rows_of(0, growth)
    same = np.ones((LENGTH, LENGTH), bool) if segments is None else segments[0, :, None] == segments[0, None]
    seen = same & np.tril(np.ones_like(same)) if causal else same
    actual = sums(causal, segments, *(jnp.asarray(array, jnp.float32) for array in rows))
    np.testing.assert_allclose(actual, by_softmax(*rows, seen), 2e-5, 2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1, 100, 1e4])
def test_gradients_are_finite_where_queries_and_keys_have_no_feature_in_common(scale):
    arrays = [scale * jnp.asarray(rows, jnp.float32) for rows in rows_of(0, 0)[:2]]

    def loss(log_q, log_k):
        return jnp.square(sums(True, None, log_q, log_k, log_k[..., :SIZE])).sum() / scale**2

    gradients = jax.jit(jax.grad(loss, argnums=(0, 1)))(*arrays)
    assert all(bool(jnp.isfinite(gradient).all()) for gradient in gradients)
