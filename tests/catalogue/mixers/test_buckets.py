"""Attention in buckets, against every pair of tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import clustered

from tfm.catalogue.mixers.clustered.buckets import BucketedKeys, bucket_attention, cached_bucket_attention, sort_rounds

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]

LENGTH, COUNT = 13, 2
RNG = np.random.default_rng(0)
Q, K = (RNG.normal(size=(2, LENGTH, 2, 2, 4)).astype(np.float32) for _ in range(2))
V = RNG.normal(size=(2, LENGTH, 2, 4)).astype(np.float32)
BUCKETS = RNG.integers(0, COUNT, (2, LENGTH, 2, 2, 3)).astype(np.int32)
SEGMENTS = np.array([[1] * 5 + [3] * 8, [2] * 9 + [1] * 4], np.int32)
NEAR = {"rtol": 1e-5, "atol": 1e-5}


def expected(buckets, chunk, causal):
    values = np.broadcast_to(V[:, :, :, None], Q.shape)
    return clustered.bucket_attention(np.einsum("btkgh,bskgh->bkgts", Q, K), values, buckets, chunk, causal)


@pytest.mark.parametrize("segments", [None, SEGMENTS], ids=["one", "packed"])
@pytest.mark.parametrize(("chunk", "causal"), [(1, True), (2, False), (3, True), (5, False), (20, True)])
def test_what_is_seen_is_what_shares_a_bucket_and_is_near(chunk, causal, segments):
    labels = BUCKETS if segments is None else BUCKETS + COUNT * segments[:, :, None, None, None]

    @jax.jit
    def attention(q, k, v, buckets):
        return bucket_attention(q, k, v, sort_rounds(buckets, segments, chunk, causal))

    np.testing.assert_allclose(attention(Q, K, V, BUCKETS), expected(labels, chunk, causal), **NEAR)


def test_gradients_are_those_of_all_pairs():
    rounds = sort_rounds(jnp.asarray(BUCKETS), None, 3, True)
    seen = np.zeros((2, 2, 2, LENGTH, LENGTH), bool)
    for b, k, g in np.ndindex(seen.shape[:3]):
        seen[b, k, g] = clustered.seen_in_buckets(BUCKETS[b, :, k, g], 3, True)

    def all_pairs(q, k, v):
        scores = jnp.where(seen, jnp.einsum("BTKGH,BSKGH->BKGTS", q, k), -jnp.inf)
        return jnp.einsum("BKGTS,BSKH->BTKGH", jax.nn.softmax(scores, axis=-1), v)

    actual, reference = (
        jax.jit(jax.grad(lambda *inputs, function=function: (function(*inputs) * Q).sum(), argnums=(0, 1, 2)))(Q, K, V)
        for function in (lambda q, k, v: bucket_attention(q, k, v, rounds), all_pairs)
    )
    for gradient, gradient2 in zip(actual, reference, strict=True):
        np.testing.assert_allclose(gradient, gradient2, **NEAR)


def test_the_last_tokens_after_a_state():
    """Slots behind the state hold nothing, whatever is in them."""
    filled, slots = 8, 11
    state = BucketedKeys(*(np.concatenate([x[:, :filled], x[:, : slots - filled]], 1) for x in (K, V, BUCKETS)))
    new = BucketedKeys(*(x[:, filled:] for x in (K, V, BUCKETS)))
    heads = jax.jit(cached_bucket_attention, static_argnums=4)(Q[:, filled:], new, state, filled, 2)
    np.testing.assert_allclose(heads, expected(BUCKETS, 2, True)[:, filled:], **NEAR)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
def test_cost_is_linear(causal):
    """Four times as long, at most 4.5 times the operations and temporary bytes of a gradient."""

    def cost(length):
        q = jax.ShapeDtypeStruct((1, length, 2, 1, 16), jnp.float32)
        v = jax.ShapeDtypeStruct((1, length, 2, 16), jnp.float32)
        buckets = jax.ShapeDtypeStruct((1, length, 2, 1, 2), jnp.int32)

        def loss(q, v, buckets):
            return bucket_attention(q, q, v, sort_rounds(buckets, None, 16, causal)).sum()

        compiled = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(q, v, buckets).compile()
        return compiled.cost_analysis()["flops"], compiled.memory_analysis().temp_size_in_bytes

    for long, short in zip(cost(4096), cost(1024), strict=True):
        assert long < 4.5 * short
