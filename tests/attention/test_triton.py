"""The kernels of Triton, as jax computes them without a GPU: against the plain formula, and their draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import tfm
from tfm.attention.kernels.triton import MULTIPLE, triton

pytestmark = pytest.mark.usefixtures("strict")

B, T, K, G, H, RATE = 2, MULTIPLE + 22, 2, 2, 16, 0.3
KEY = jax.random.key(7)
IDS = jnp.asarray(np.sort(np.random.default_rng(0).integers(0, 3, (B, T))), jnp.int32)
MASKS = {
    "none": None,
    "window": tfm.window(30, 5),
    "packed": tfm.causal() & tfm.segments(IDS),
    "hidden keys": tfm.causal() & tfm.padding(IDS < 2),
}


def arrays(batch=B):
    rng = np.random.default_rng(1)
    return [jnp.asarray(rng.normal(size=(batch, T, *shape)), jnp.float32) for shape in ((K, G, H), (K, H), (K, H))]


def values_and_gradients(kernel, *inputs):
    """Of a weighted sum of results."""
    weights = jnp.asarray(np.random.default_rng(2).normal(size=inputs[0].shape), jnp.float32)
    return jax.value_and_grad(lambda *qkv: (kernel(*qkv) * weights).sum(), argnums=(0, 1, 2))(*inputs)


def assert_same(actual, expected):
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["packed", *(pytest.param(name, marks=pytest.mark.slow) for name in MASKS)])
def test_it_is_attention(name):
    """Lengths are no multiple of a block; two heads of queries share those of keys."""
    actual, expected = (
        values_and_gradients(lambda q, k, v, kernel=kernel: kernel(q, k, v, MASKS[name]), *arrays())
        for kernel in (triton, tfm.attend)
    )
    assert_same(actual, expected)


def factors(mask, key=KEY):
    """What the kernel multiplies the weights [B,T,K,G,S] by, read off values that are unit vectors; 0 where there is
    no weight."""
    q, k, _ = arrays()
    columns = [jnp.zeros((B, T, K, H)).at[:, np.arange(H) + start, :, np.arange(H)].set(1) for start in range(0, T, H)]
    columns = [column for column in columns if column.shape[-1] == H]
    weights, dropped = (
        jnp.concatenate([attend(q, k, column) for column in columns], -1)
        for attend in (
            lambda q, k, v: tfm.attend(q, k, v, mask),
            jax.jit(lambda q, k, v: triton(q, k, v, mask, None, RATE, key)),
        )
    )
    return np.asarray(jnp.where(weights > 1e-9, dropped / weights, 0))[..., :T]


@pytest.mark.slow
def test_gradients_drop_the_weights_of_the_forward_pass():
    """At the rate; the same for the same key, others for another one."""
    mask = MASKS["packed"]
    scales = factors(mask)
    allowed = np.broadcast_to(np.asarray(mask.dense(T))[:, :, None, None], scales.shape)
    np.testing.assert_allclose(scales[scales > 0.5], 1 / (1 - RATE), rtol=1e-2)
    np.testing.assert_allclose((scales[allowed] == 0).mean(), RATE, atol=4 * np.sqrt(RATE / allowed.sum()))

    def dense(q, k, v):
        scores = jnp.einsum("BTKGH,BSKH->BKGTS", q, k) / np.sqrt(H)
        weights = jax.nn.softmax(jnp.where(mask.dense(T)[:, None, None], scores, -jnp.inf))
        kept = jnp.where(scales > 0.5, 1 / (1 - RATE), 0)
        return jnp.einsum("BTKGS,BSKH->BTKGH", jnp.moveaxis(weights, 3, 1) * kept, v)

    dropped = lambda key: values_and_gradients(lambda q, k, v: triton(q, k, v, mask, None, RATE, key), *arrays())
    actual = dropped(KEY)
    assert_same(actual, values_and_gradients(dense, *arrays()))
    assert dropped(KEY)[0] == actual[0] != dropped(jax.random.key(8))[0]


@pytest.mark.slow
def test_draws_do_not_depend_on_the_mesh():
    mesh = tfm.make_mesh(2, 2, 2)
    inputs = arrays()
    run = lambda q, k, v: triton(q, k, v, MASKS["packed"], None, RATE, KEY)
    with jax.set_mesh(mesh):
        specs = P("data", None, "tensor", None, None), *[P("data", None, "tensor", None)] * 2
        sharded = [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip(inputs, specs, strict=True)]
        actual = jax.jit(run)(*sharded)
    np.testing.assert_allclose(actual, run(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"platform": "tpu"}, "kernel=triton cannot do this: triton needs an NVIDIA GPU"),
        ({"bias": tfm.alibi(12)}, "a bias is added to the scores"),
        ({"mask": tfm.causal() | tfm.prefix(jnp.ones(8, jnp.int32))}, "this mask has other parts"),
        ({"size": 48}, "heads must have 16, 32, 64 or 128 numbers, and they have 48"),
        ({"dtype": "float32"}, "triton computes in bfloat16 and float16, and this is float32"),
    ],
)
def test_what_it_cannot_do(options, message):
    options = {"platform": "gpu 9.0", "size": 64, "dtype": "bfloat16"} | options
    size, dtype = options.pop("size"), options.pop("dtype")
    q, k = (jax.ShapeDtypeStruct((8, 256, 12, *group, size), dtype) for group in ((1,), ()))
    with pytest.raises(tfm.KernelError, match=message):
        tfm.choose_kernel(q, k, kernel="triton", rate=0.1, **options)


def test_it_drops_weights_where_it_is_asked_for():
    q, k = (jax.ShapeDtypeStruct((8, 256, 12, *group, 64), "bfloat16") for group in ((1,), ()))
    mask = tfm.causal() & tfm.segments(jnp.ones((8, 256), int))
    assert tfm.choose_kernel(q, k, mask, rate=0.1, kernel="triton", platform="gpu 8.0").name == "triton"
