"""Where values that are not finite arise: in plants of known places, under scan, recomputation and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.layers.groups import layer_scope

X = jnp.linspace(0.1, 1.0, 12).reshape(4, 3)
# Of the three layers, the second has a weight whose exponential overflows.
WEIGHTS = {"w": jnp.array([[[1.0] * 3] * 3, [[300.0] * 3] * 3, [[1.0] * 3] * 3])}


def layer(x, w):
    with jax.named_scope("mixer"):
        x = x @ w / 3
    with jax.named_scope("feed_forward"):
        return jnp.log1p(jnp.exp(x * w.sum()))


def model(params, x, scan, remat):
    block = jax.checkpoint(layer) if remat else layer

    def body(x, w):
        with layer_scope(0, 1):
            return block(x, w), None

    if scan:
        x = jax.lax.scan(body, x, params["w"])[0]
    else:
        for index, w in enumerate(params["w"]):
            with layer_scope(index):
                x = block(x, w)
    with jax.named_scope("norm"):
        return (x / jnp.sqrt((x * x).mean(-1, keepdims=True))).sum()


@pytest.mark.parametrize("remat", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("scan", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("backward", [False, True])
def test_the_layer_and_sublayer_are_named(scan, remat, backward):
    function = jax.grad(model) if backward else model
    origin = tfm.first_not_finite(lambda params, x: function(params, x, scan, remat), WEIGHTS, X)
    assert (origin.scope, origin.is_backward) == ("layer 1/feed_forward", False)
    assert (origin.operation, origin.shape, origin.rows) == ("exp", (4, 3), (0, 1, 2, 3))
    assert (origin.nans, origin.infinities) == (0, 12)
    assert "layer 1/feed_forward is the first that is not finite (exp: 12 inf in 12 values" in str(origin)


@pytest.mark.parametrize("scan", [pytest.param(False, marks=pytest.mark.slow), True])
def test_it_computes_what_the_function_computes(scan):
    params = {"w": WEIGHTS["w"] / 300}
    function = jax.value_and_grad(lambda params, x: model(params, x, scan, True))
    run = tfm.run_by_scope(function, params, X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), run.outputs, function(params, X))
    assert run.origin is None
    assert [scope for scope in run.sizes if scope.endswith("mixer")] == [f"layer {index}/mixer" for index in range(3)]


def test_the_backward_pass_alone():
    """Tiny values are scaled up twice; the gradient of that is beyond float32."""

    def loss(x):
        with jax.named_scope("twice"):
            return (jnp.sin(x * 1e25) * 1e25).sum()

    x = X * 1e-30
    assert tfm.first_not_finite(loss, x) is None
    origin = tfm.first_not_finite(jax.grad(loss), x)
    assert (origin.scope, origin.is_backward, origin.infinities) == ("twice", True, 12)
    assert str(origin).startswith("the backward pass of twice is")


def test_arguments_come_first_and_by_their_names():
    params = {"w": WEIGHTS["w"].at[2, 0, 1].set(jnp.nan)}
    assert tfm.names_not_finite(params) == ["w"]
    origin = tfm.first_not_finite(lambda params, x: model(params, x, True, False), params, X)
    assert (origin.scope, origin.rows) == ("w", (2,))
    assert str(origin) == "w is not finite (1 nan in 27 values)"


@pytest.mark.slow
def test_what_a_mask_hides_does_not_count():
    def masked(x):
        logarithms = jnp.where(x > 0, jnp.log(x), 0.0)
        scores = jnp.where(x > 0, x, -jnp.inf)
        return logarithms + jax.nn.softmax(scores)

    assert tfm.first_not_finite(masked, X.at[:, 0].set(0.0)) is None
    origin = tfm.first_not_finite(masked, X.at[3].set(0.0))  # nothing is left of row 3
    assert origin.rows == (3,)
    assert origin.nans == 3


def test_integers_and_keys_are_finite():
    assert tfm.names_not_finite({"key": jax.random.key(0), "n": jnp.arange(3), "x": jnp.ones(2, jnp.bfloat16)}) == []
    assert tfm.names_not_finite({"a": jnp.array([1, -jnp.inf], jnp.bfloat16), "b": np.float32(1)}) == ["a"]


@pytest.mark.slow
@pytest.mark.parametrize("scan", [False, True])
def test_a_weight_of_a_model(scan):
    config = tfm.override(tfm.Config(), {"layers": 3, "width": 16, "heads": 2, "ffn": 32, "vocab": 32, "length": 8})
    config = tfm.override(config, {"scan": scan, "dropout": 0.0})
    params = random_params(tfm.encoder_specs(config))

    def plant(path, leaf):
        name = jax.tree_util.keystr(path)
        return leaf.at[1].set(1e30) if "feed_forward" in name and leaf.ndim == 3 else leaf

    params = jax.tree_util.tree_map_with_path(plant, params)
    encoder = lambda params, tokens: tfm.encoder(params, config, tokens)
    origin = tfm.first_not_finite(encoder, params, jnp.ones((2, 8), int))
    assert origin.scope == "layer 1/feed_forward"
    assert origin.line.startswith("tfm/")
