"""Dropout of attention weights in chunks: a Bernoulli draw of each pair, whatever blocks, orders and devices are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import tfm
from tfm.attention.kernels import block_sizes
from tfm.attention.kernels.dropout import weight_dropout

pytestmark = pytest.mark.usefixtures("strict")

B, T, K, G, H, RATE = 2, 24, 2, 2, 4, 0.3
KEY = jax.random.key(7)
STRIDED = tfm.causal() & (tfm.window(2, 0) | tfm.strided(5))
PACKED = tfm.causal() & tfm.segments(jax.device_put(np.sort(np.random.default_rng(0).integers(0, 3, (B, T)))))


@pytest.fixture
def small(monkeypatch):
    """Blocks of 4."""
    monkeypatch.setattr(block_sizes, "SMALLEST", 4)
    monkeypatch.setattr(block_sizes, "SCORES", {"cpu": 1})


def arrays():
    rng = np.random.default_rng(1)
    return [jax.device_put(np.float32(rng.normal(size=(B, T, *shape)))) for shape in ((K, G, H), (K, H), (K, H))]


def factors(mask, key=KEY):
    """What the kernel multiplies the weights [B,T,K,G,S] by, read off values that are unit vectors; 0 where there is
    no weight."""
    units = np.broadcast_to(np.eye(T, dtype=np.float32)[None, :, None], (B, T, K, T))

    @jax.jit  # anew each time: sizes of blocks change
    def divided(q, k):
        weights = tfm.attend(q, k, units, mask)
        return jnp.where(weights > 0, tfm.chunked(q, k, units, mask, None, RATE, key) / weights, 0)

    return divided(*arrays()[:2])


@pytest.mark.parametrize(
    "mask",
    [pytest.param(None, marks=pytest.mark.slow), pytest.param(STRIDED, marks=pytest.mark.slow), PACKED],
    ids=["none", "strided", "packed"],
)
def test_weights_are_dropped_at_the_rate(mask, small):
    """All others are scaled, and no block size changes which."""
    scales = np.asarray(factors(mask))
    allowed = np.ones((1, T, T), bool) if mask is None else np.asarray(mask.dense(T))
    allowed = np.broadcast_to(allowed[:, :, None, None], scales.shape)
    np.testing.assert_allclose(scales[scales > 0.5], 1 / (1 - RATE), rtol=1e-3)
    np.testing.assert_allclose((scales[allowed] == 0).mean(), RATE, atol=4 * np.sqrt(RATE / allowed.sum()))
    block_sizes.SMALLEST = 16
    np.testing.assert_allclose(factors(mask), scales, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mask",
    [None, STRIDED, PACKED],
    ids=["none", "strided", "packed"],
)
def test_gradients_drop_the_same_weights(mask, small):
    """As a dense form with the factors of the forward pass; and again for the same key, not for another one."""
    scales, weights_of_y = factors(mask), jax.device_put(np.random.default_rng(2).normal(size=(B, T, K, G, H)))

    def dense(q, k, v):
        scores = jnp.einsum("BTKGH,BSKH->BKGTS", q, k) / np.sqrt(H)
        if mask is not None:
            scores = jnp.where(mask.dense(T)[:, None, None], scores, -jnp.inf)
        weights = jnp.moveaxis(jax.nn.softmax(scores), 3, 1) * scales
        return (jnp.einsum("BTKGS,BSKH->BTKGH", weights, v) * weights_of_y.astype(q.dtype)).sum()

    def blocks(q, k, v, key):
        return (tfm.chunked(q, k, v, mask, None, RATE, key) * weights_of_y.astype(q.dtype)).sum()

    expected = jax.jit(jax.value_and_grad(dense, argnums=(0, 1, 2)))(*arrays())
    gradient = jax.jit(jax.value_and_grad(blocks, argnums=(0, 1, 2)))
    actual = gradient(*arrays(), KEY)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert gradient(*arrays(), KEY)[0] == actual[0] != gradient(*arrays(), jax.random.key(8))[0]


@pytest.mark.slow
def test_the_gradient_is_the_slope_under_a_key(small):
    inputs = [np.asarray(x) for x in arrays()]
    directions = [np.flip(x, axis=1) for x in inputs]
    loss = lambda *x: jnp.square(tfm.chunked(*x, STRIDED, None, RATE, KEY)).sum()
    value = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))

    def ahead(step):
        moved = [x + np.float32(step) * d for x, d in zip(inputs, directions, strict=True)]
        return float(value(*moved)[0])

    slope = sum((np.asarray(g) * d).sum() for g, d in zip(value(*inputs)[1], directions, strict=True))
    np.testing.assert_allclose((ahead(1e-2) - ahead(-1e-2)) / 2e-2, slope, rtol=1e-2)


@pytest.mark.slow
def test_the_mean_over_keys_is_attention_without_dropout(small):
    q, k, v = arrays()
    ys = jax.jit(jax.vmap(lambda key: tfm.chunked(q, k, v, STRIDED, None, RATE, key)))(jax.random.split(KEY, 2000))
    error = np.abs(ys.mean(0) - tfm.attend(q, k, v, STRIDED)) / (ys.std(0) / np.sqrt(len(ys)) + 1e-6)
    assert error.max() < 5


def test_draws_do_not_depend_on_each_other():
    """Those of neighbours in every axis, and of another key, have no correlation."""
    size = 256

    @jax.jit
    def draw(key):
        dropout = weight_dropout(jnp.zeros((2, size, 2, 2, 4)), 0.5, key)
        i = jnp.arange(size)[None]
        return dropout.apply(jnp.ones((2, 2, 2, size, size)), i, i) - 1

    drawn = np.asarray(draw(KEY))
    limit = 5 / np.sqrt(drawn.size / 2)
    assert abs(drawn.mean()) < limit
    assert abs((drawn * draw(jax.random.key(8))).mean()) < limit
    for axis in range(5):
        for step in (1, 2, 64):
            if step < drawn.shape[axis]:
                assert abs((drawn * np.roll(drawn, step, axis)).mean()) < limit


@pytest.mark.slow
def test_devices_draw_what_a_single_one_draws(small):
    q, k, v = (jnp.concatenate([x, x[::-1]]) for x in arrays())
    mask = tfm.causal() & tfm.segments(jnp.arange(T)[None] // jnp.array([[9], [5], [24], [12]]))
    gradient = jax.jit(
        jax.value_and_grad(lambda *x: jnp.square(tfm.chunked(*x, mask, None, RATE, KEY)).sum(), argnums=(0, 1, 2))
    )
    expected = gradient(q, k, v)
    mesh = tfm.make_mesh(2, 2, 2)
    with jax.set_mesh(mesh):
        places = P(("data", "fsdp"), None, "tensor")
        actual = gradient(*(jax.device_put(x, NamedSharding(mesh, places)) for x in (q, k, v)))
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
