"""Layers of experts against a loop over tokens and experts, and their losses against plain sums."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.catalogue.feed_forwards import expert_choice, experts

BASE = tfm.Config(layers=1, heads=2, width=6, ffn=10, vocab=20, dropout=0.0)
VALID = np.array([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]], bool)
CASES = {
    "two": {"feed_forward.experts": 4},
    "as they are": {
        "feed_forward.experts": 4,
        "feed_forward.renormalize": False,
        "activation": "swiglu",
        "bias": False,
    },
    "one": {"feed_forward.experts": 3, "feed_forward.top_k": 1},
    "all": {"feed_forward.experts": 3, "feed_forward.top_k": 3, "feed_forward.shared": 2},
    "room": {"feed_forward.experts": 3, "feed_forward.capacity": 0.6},
    "slots": {"feed_forward.experts": 2, "feed_forward.top_k": 1, "feed_forward.slots": 2},
}


def example(values, name="experts"):
    """A configuration, parameters, x [2,7,D] and a pass with padding."""
    config = tfm.override(BASE, {"feed_forward": name} | values)
    module = experts if name == "experts" else expert_choice
    specs = module.FEED_FORWARD.specs(config.feed_forward, config)
    params = random_params(specs, std=0.5)
    x = jnp.float32(np.random.default_rng(1).normal(size=(2, 7, config.width)))
    context = tfm.AttentionContext(tfm.default_positions(x), tfm.padding(jnp.asarray(VALID)))
    return config, params, x, context, module.FEED_FORWARD.forward


def gelu(x):
    return np.vectorize(lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))))(x)


def expert(layer, index, config, x):
    """What one expert makes of one token, by numpy."""
    bias = lambda leaf: 0 if leaf is None else np.asarray(leaf, np.float64)[index]
    up = x @ np.asarray(layer.up, np.float64)[index] + bias(layer.up_bias)
    if layer.gate is not None:
        gate = x @ np.asarray(layer.gate, np.float64)[index] + bias(layer.gate_bias)
        hidden = gate / (1 + np.exp(-gate)) * up
    else:
        hidden = gelu(up)
    return hidden @ np.asarray(layer.down, np.float64)[index] + bias(layer.down_bias)


def shared(layer, x):
    """What the shared experts make of a token."""
    if layer.shared is None:
        return 0
    dense = jax.tree.map(np.float64, layer.shared)
    return gelu(x @ dense.up.kernel + dense.up.bias) @ dense.down.kernel + dense.down.bias


def probabilities_of(layer, x):
    """Those of the router, for the tokens of a row."""
    logits = x @ np.asarray(layer.router.kernel, np.float64)
    exponentials = np.exp(logits)
    return exponentials / exponentials.sum(-1, keepdims=True), np.log(exponentials.sum(-1))


def by_loops(params, config, x):
    """Token by token, each of which takes its experts in order while they have room."""
    options, layer, x = config.feed_forward, params.experts, np.asarray(x, np.float64)
    y, length = np.zeros_like(x), x.shape[1]
    capacity = options.slots or length
    if options.capacity:
        capacity = math.ceil(options.capacity * options.top_k * length / options.experts)
    for row in range(len(x)):
        taken = np.zeros(options.experts, int)
        probabilities, _ = probabilities_of(layer, x[row])
        for place in range(length):
            y[row, place] += shared(layer, x[row, place])
            if not VALID[row, place]:
                continue
            chosen = np.argsort(-probabilities[place], kind="stable")[: options.top_k]
            gates = probabilities[place, chosen]
            if options.renormalize and options.top_k > 1:
                gates = gates / gates.sum()
            for index, gate in zip(chosen, gates, strict=True):
                if taken[index] < capacity:
                    y[row, place] += gate * expert(layer, index, config, x[row, place])
                taken[index] += 1
    return y


def choices_by_loops(params, config, x):
    """Expert by expert, each of which takes its most probable tokens."""
    options, x = config.feed_forward, np.asarray(x, np.float64)
    y, length = np.zeros_like(x), x.shape[1]
    for row in range(len(x)):
        probabilities, _ = probabilities_of(params, x[row])
        probabilities = np.where(VALID[row][:, None], probabilities, 0)
        for index in range(options.experts):
            places = np.argsort(-probabilities[:, index], kind="stable")
            for place in places[: math.ceil(options.capacity * length / options.experts)]:
                y[row, place] += probabilities[place, index] * expert(params, index, config, x[row, place])
    return y


def slope(function, x, direction):
    """The derivative along a direction, by central differences."""
    step = 1e-6
    return (function(x + step * direction) - function(x - step * direction)) / (2 * step)


def assert_equal_with_slope(case, by_numpy):
    """Values, and the gradient of a sum along a random direction of x."""
    config, params, x, context, forward = case
    call = tfm.LayerCall(config.feed_forward, config, params)
    x64, (direction, weights) = np.asarray(x, np.float64), np.random.default_rng(2).normal(size=(2, *x.shape))

    def loss(x):
        y = forward(call, x, context)
        return (y * jnp.float32(weights)).sum(), y

    (_, y), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(x)
    np.testing.assert_allclose(y, by_numpy(params, config, x64), rtol=1e-5, atol=1e-5)
    expected = (slope(lambda x: by_numpy(params, config, x), x64, direction) * weights).sum()
    np.testing.assert_allclose((np.asarray(gradient, np.float64) * direction).sum(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["two", *[pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != "two"]]
)
def test_tokens_that_choose_experts(name):
    assert_equal_with_slope(example(CASES[name]), by_loops)


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [1.0, 2.0])
def test_experts_that_choose_tokens(capacity):
    values = {"feed_forward.experts": 3, "feed_forward.capacity": capacity}
    assert_equal_with_slope(example(values, "expert_choice"), choices_by_loops)


@pytest.mark.slow
def test_one_expert_is_the_dense_layer():
    config, params, x, context, forward = example({"feed_forward.experts": 1, "feed_forward.top_k": 1})
    layer = params.experts
    dense = tfm.FeedForward(
        tfm.Linear(layer.up[0], layer.up_bias[0]), None, tfm.Linear(layer.down[0], layer.down_bias[0])
    )
    y = forward(tfm.LayerCall(config.feed_forward, config, params), x, context)
    wanted = np.where(VALID[..., None], tfm.feed_forward(dense, config, x), 0)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


def losses_by_sums(params, config, x):
    """Both losses of a router, by jnp."""
    options, tokens = config.feed_forward, x[VALID]
    logits = tokens @ params.experts.router.kernel
    probabilities = jax.nn.softmax(logits)
    _, chosen = jax.lax.top_k(probabilities, options.top_k)
    shares = jax.nn.one_hot(chosen, options.experts).sum((0, 1)) / (len(tokens) * options.top_k)
    balance = options.experts * (shares * probabilities.mean(0)).sum()
    return options.balance * balance + options.z * (jax.nn.logsumexp(logits, -1) ** 2).mean(), shares


@pytest.mark.slow
def test_losses_join_the_gradient_with_their_weight():
    """And the load moves by a tenth towards what was seen; without a weight the gradient is that of y alone."""
    values = {"feed_forward.experts": 4, "feed_forward.balance": 0.3, "feed_forward.z": 0.2}
    config, params, x, context, forward = example(values)
    options = config.feed_forward

    def total(params, x):
        return (forward(tfm.LayerCall(options, config, params), x, context) ** 2).sum()

    def with_losses(params, x):
        return total(params, x) + 7.0 * losses_by_sums(params, config, x)[0]

    for weight, function in ((None, total), (7.0, with_losses)):
        weighted = params if weight is None else tfm.with_loss_weight(params, jnp.float32(weight))
        actual, actual_x = jax.grad(total, (0, 1))(weighted, x)
        expected, expected_x = jax.grad(function, (0, 1))(params, x)
        np.testing.assert_allclose(actual.experts.router.kernel, expected.experts.router.kernel, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(actual.experts.up, expected.experts.up, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(actual_x, expected_x, rtol=1e-4, atol=1e-5)
        shares = losses_by_sums(params, config, x)[1]
        change = 0.1 * (shares - params.load.observed)
        np.testing.assert_allclose(actual.load.observed, change, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"feed_forward": "experts", "feed_forward.top_k": 9}, "top_k=9 must be at most experts=8; 1 or 2 is usual"),
        ({"feed_forward": "experts", "feed_forward.capacity": 0.0}, "capacity=0.0 must be more than 0"),
        ({"feed_forward": "experts", "feed_forward.slots": 0}, "slots=0 must be at least 1"),
        (
            {"feed_forward": "experts", "feed_forward.slots": 9, "feed_forward.capacity": 1.0},
            "capacity=1.0 and slots=9 both limit an expert; leave one out",
        ),
        ({"feed_forward": "experts", "share_layers": True}, "shares the measured load"),
        ({"feed_forward": "expert_choice", "feed_forward.experts": 0}, "experts=0 must be at least 1"),
    ],
)
def test_bad_options(values, says):
    with pytest.raises(ValueError, match=says):
        tfm.override(BASE, values)


def test_a_mesh_that_does_not_divide_experts():
    config = tfm.override(BASE, {"feed_forward": "experts", "feed_forward.experts": 6})
    mesh = tfm.make_mesh(data=2, expert=4, devices=jax.devices()[:8])
    with pytest.raises(ValueError, match=r"mesh.expert = 4 must divide the experts axis of size 6 of .*up; try 3"):
        tfm.shardings(tfm.encoder_specs(config), mesh)


def test_a_decoder_of_experts_that_choose_is_refused():
    config = tfm.override(BASE, {"feed_forward": "expert_choice"})
    params = tfm.abstract(tfm.causal_lm_specs(config))
    with pytest.raises(tfm.VariantError, match="feed_forward=experts"):
        jax.eval_shape(lambda params: tfm.causal_lm(params, config, jnp.ones((1, 4), int)), params)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["experts", "expert_choice"])
@pytest.mark.parametrize("sizes", [{"data": 2, "expert": 4}, {"data": 1, "expert": 2, "fsdp": 2, "tensor": 2}])
def test_eight_devices_are_one(name, sizes):
    """Values and gradients, the losses of routers among them; with padding."""
    values = {"feed_forward": name, "feed_forward.experts": 4, "layers": 2, "width": 16, "ffn": 24}
    config = tfm.override(dataclasses.replace(BASE, length=8), values)
    specs = tfm.encoder_specs(config)
    params = random_params(specs, std=0.2)
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 20, (8, 8)))
    valid = jnp.arange(8)[None] < jnp.array([8, 6, 3, 8, 8, 5, 8, 1])[:, None]

    def loss(params, tokens, valid):
        params = tfm.with_loss_weight(params, jnp.float32(5))
        states = tfm.encoder(params, config, tokens, tfm.padding(valid))
        return (states * jax.random.normal(jax.random.key(1), states.shape)).sum()

    expected = jax.jit(jax.value_and_grad(loss))(params, tokens, valid)
    mesh = tfm.make_mesh(**sizes, devices=jax.devices()[:8])
    with jax.set_mesh(mesh):
        sharded = jax.device_put(params, tfm.shardings(specs, mesh))
        rows = jax.NamedSharding(mesh, tfm.partition("BT", (8, 8), mesh))
        actual = jax.jit(jax.value_and_grad(loss))(sharded, *jax.device_put((tokens, valid), rows))
    for leaf, reference in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        scale = np.abs(np.asarray(reference)).max()
        np.testing.assert_allclose(leaf, reference, rtol=1e-4, atol=2e-4 * scale + 1e-5)
