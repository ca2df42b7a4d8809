import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.usefixtures("strict")

B, T, S, K, G, H = 2, 5, 7, 2, 3, 4


def arrays(queries=T, keys=S):
    rng = np.random.default_rng(0)
    shapes = (B, queries, K, G, H), (B, keys, K, H), (B, keys, K, H)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def loop(q, k, v, allowed=None, bias=None):
    """Five loops: q [B,T,K,G,H], k [B,S,K,H], v [B,S,K,h] -> [B,T,K,G,h], and weights [B,K,G,T,S].

    allowed: [B,T,S]
    bias: [B,K,G,T,S]
    """
    queries, keys = q.shape[1], k.shape[1]
    y, weights = np.zeros((*q.shape[:-1], v.shape[-1])), np.zeros((B, K, G, queries, keys))
    for b, t, kv, g in np.ndindex(B, queries, K, G):
        scores = [float(q[b, t, kv, g] @ k[b, s, kv]) / math.sqrt(H) for s in range(keys)]
        if bias is not None:
            scores = [score + bias[b, kv, g, t, s] for s, score in enumerate(scores)]
        seen = [s for s in range(keys) if allowed is None or allowed[b, t, s]]
        total = sum(math.exp(scores[s]) for s in seen)
        for s in seen:
            weights[b, kv, g, t, s] = math.exp(scores[s]) / total
            y[b, t, kv, g] += weights[b, kv, g, t, s] * v[b, s, kv]
    return y, weights


QUERY_SEGMENTS = jnp.array([[1, 1, 2, 2, 0], [3, 1, 1, 3, 2]])
KEY_SEGMENTS = jnp.array([[1, 1, 2, 2, 0, 0, 0], [3, 1, 1, 3, 2, 2, 2]])
MASKS = {
    "none": None,
    "causal": tfm.causal(),
    "padding": tfm.padding(jnp.array([[1, 1, 1, 0, 0, 0, 0], [0, 1, 1, 1, 1, 0, 1]])),
    "combined": tfm.window(3, 1) & tfm.segments(QUERY_SEGMENTS, KEY_SEGMENTS),
}


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_attend_is_softmax_attention(name, biased):
    q, k, v = arrays()
    mask, bias = MASKS[name], tfm.alibi(K * G, K) if biased else None
    allowed = None if mask is None else np.broadcast_to(mask.dense(T, S), (B, T, S))
    added = None if bias is None else np.broadcast_to(bias.dense(T, S), (B, K, G, T, S))
    y, weights = loop(q, k, v, allowed, added)
    np.testing.assert_allclose(tfm.attend(q, k, v, mask, bias), y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(tfm.attention_weights(q, k, mask, bias), weights, rtol=1e-5, atol=1e-6)


def test_plain_heads_are_grouped_in_order():
    """q [B,T,N,H]: head n uses key/value head n // G; with as many key/value heads as heads, each its own."""
    q, k, v = arrays()
    grouped = tfm.attend(q, k, v)
    plain = tfm.attend(q.reshape(B, T, K * G, H), k, v)
    np.testing.assert_allclose(plain, grouped.reshape(B, T, K * G, H), rtol=1e-6)
    ungrouped = tfm.attend(q.reshape(B, T, K * G, H), k.repeat(G, axis=2), v.repeat(G, axis=2))
    np.testing.assert_allclose(plain, ungrouped, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attention", [tfm.attend, tfm.chunked])
def test_values_of_another_size_than_keys(attention):
    """[B,T,K,G,h] of values [B,S,K,h]; `attend` takes plain heads [B,T,N,H] too."""
    q, k, _ = arrays()
    v = np.random.default_rng(1).normal(size=(B, S, K, 6)).astype(np.float32)
    y, _ = loop(q, k, v, np.broadcast_to(tfm.window(3, 1).dense(T, S), (B, T, S)))
    np.testing.assert_allclose(attention(q, k, v, tfm.window(3, 1)), y, rtol=1e-5, atol=1e-5)
    plain = tfm.attend(q.reshape(B, T, K * G, H), k, v, tfm.window(3, 1))
    np.testing.assert_allclose(plain, y.reshape(B, T, K * G, 6), rtol=1e-5, atol=1e-5)


def test_attend_refuses_heads_that_do_not_divide():
    q, k, v = arrays()
    with pytest.raises(ValueError, match=r"q has 5 heads, which k's 2 must divide; shapes are q \(2, 5, 5, 4\)"):
        tfm.attend(q.reshape(B, T, K * G, H)[:, :, :5], k, v)


def test_a_query_that_may_see_nothing_gets_the_mean_of_all_values():
    q, k, v = arrays()
    nothing = tfm.padding(jnp.array([[False] * S, [True] * S]))
    for bias in (None, tfm.alibi(K * G, K)):
        y = np.asarray(tfm.attend(q, k, v, nothing, bias))
        expected = np.broadcast_to(v[0].mean(0)[None, :, None], (T, K, G, H))
        np.testing.assert_allclose(y[0], expected, rtol=1e-5, atol=1e-6)
    gradients = jax.grad(lambda *qkv: tfm.attend(*qkv, nothing).sum(), argnums=(0, 1, 2))(q, k, v)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_softmax_is_float32_and_large_scores_do_not_overflow():
    q, k, v = (jnp.asarray(x).astype(jnp.bfloat16) for x in arrays())
    assert tfm.attention_weights(q, k).dtype == jnp.float32
    assert tfm.attend(q, k, v).dtype == jnp.bfloat16
    weights = np.asarray(tfm.attention_weights(q * 1000, k * 1000))
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)


def test_dropout_drops_weights_and_keeps_the_expectation():
    q, k, v = arrays()
    copies = 1000
    many = [x.repeat(copies, axis=0) for x in (q, k, v)]
    samples = np.asarray(tfm.attend(*many, rate=0.2, key=jax.random.key(0))).reshape(B, copies, T, K, G, H)
    error = samples.std(1) / math.sqrt(copies)
    assert error.min() > 0
    assert (np.abs(samples.mean(1) - loop(q, k, v)[0]) < 5 * error).all()


def test_dropout_needs_a_key_and_depends_on_it_alone():
    q, k, v = arrays()
    run = lambda seed: tfm.attend(q, k, v, rate=0.5, key=jax.random.key(seed))
    np.testing.assert_array_equal(run(0), run(0))
    assert not np.allclose(run(0), run(1))
    with pytest.raises(ValueError, match=r"^rate=0.5 needs a key"):
        tfm.attend(q, k, v, rate=0.5)


CONFIG = tfm.Config(heads=6, kv_heads=2, width=24, dropout=0.1)


def project(layer, equation, x):
    return np.einsum(equation, x, layer.kernel) + np.asarray(layer.bias)


@pytest.mark.parametrize("crossed", [False, True])
def test_multi_head_attention(fill, crossed):
    layer = fill(tfm.attention_specs(CONFIG))
    rng = np.random.default_rng(1)
    x, memory = (rng.normal(size=(B, length, 24)).astype(np.float32) * 0.2 for length in (T, S))
    source, keys = (memory, S) if crossed else (x, T)
    q = project(layer.query, "BTD,DKGH->BTKGH", x)
    k = project(layer.key, "BSD,DKH->BSKH", source)
    v = project(layer.value, "BSD,DKH->BSKH", source)
    mask, bias = tfm.causal(), tfm.alibi(6, 2)
    y, _ = loop(
        q,
        k,
        v,
        np.broadcast_to(mask.dense(T, keys), (B, T, keys)),
        np.broadcast_to(bias.dense(T, keys), (B, K, G, T, keys)),
    )
    expected = project(layer.output, "BTKGH,KGHD->BTD", y)
    actual = tfm.multi_head_attention(layer, CONFIG, x, mask, bias, memory=memory if crossed else None)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-4)


def test_multi_head_attention_drops_with_the_rate_of_the_config(fill):
    layer = fill(tfm.attention_specs(CONFIG))
    x = np.random.default_rng(1).normal(size=(B, T, 24)).astype(np.float32)
    plain, dropped = (tfm.multi_head_attention(layer, CONFIG, x, key=key) for key in (None, jax.random.key(0)))
    assert not np.allclose(plain, dropped)


def test_attention_specs():
    layer = tfm.attention_specs(CONFIG)
    kernels = {name: getattr(layer, name).kernel.shape for name in ("query", "key", "value", "output")}
    assert kernels == {"query": (24, 2, 3, 4), "key": (24, 2, 4), "value": (24, 2, 4), "output": (2, 3, 4, 24)}
    biases = {name: getattr(layer, name).bias.shape for name in kernels}
    assert biases == {"query": (2, 3, 4), "key": (2, 4), "value": (2, 4), "output": (24,)}
