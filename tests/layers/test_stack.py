"""A stack of blocks is a loop over its layers, however they are planned, stored and compiled."""

import dataclasses
import itertools
from functools import partial
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers.blocks import context_of, run_block
from random_params import random_params

import tfm
from tfm.layers.groups import unstack
from tfm.layers.stack import map_layers
from tfm.norms import norm

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.Config(
    layers=2, heads=4, kv_heads=2, width=16, ffn=24, vocab=60, pad_vocab_to=64, length=12, dropout=0.0, init_std=0.3
)
# A prefix of one layer, a period of two that runs twice, and a tail of one.
MIXED = tfm.override(
    CONFIG,
    {"layers": 6, "position": "rotary", "position.base": 700.0, "residual": "pre"},
    {"prefix": 1, "prefix.0.residual": "pre", "prefix.0.residual.mixer_norm": False},
    {"period": 2, "period.0.mixer": "softmax", "period.0.mixer.pattern": "sliding"},
    {"period.0.mixer.pattern.window": 3, "period.0.position": "rotary", "period.0.position.base": 20.0},
)
PLAIN = tfm.override(CONFIG, {"position": "rotary"})
TWO_KINDS = tfm.override(PLAIN, {"layers": 4, "period": 2})


def with_windows(prefix, period, **fields):
    """Layers that are told apart by their windows."""
    values = {"prefix": len(prefix), "period": len(period), **fields}
    for name, windows in (("prefix", prefix), ("period", period)):
        for index, window in enumerate(windows):
            layer = f"{name}.{index}.mixer"
            values |= {layer: "softmax", f"{layer}.pattern": "sliding", f"{layer}.pattern.window": window}
    return tfm.override(CONFIG, values)


def windows_of(kinds):
    return [kind.mixer.pattern.window for kind in kinds]


@pytest.mark.parametrize(
    ("layers", "prefix", "period", "times", "tail"),
    [
        (5, [], [1], 5, 0),
        (6, [], [1, 2, 3], 2, 0),
        (6, [8], [1, 2], 2, 1),
        (7, [8, 9], [1, 2, 3], 1, 2),
        (3, [8, 9], [1, 2], 0, 1),
        (2, [8, 9], [1], 0, 0),
        (1, [8, 9], [1], 0, 0),
        (2, [], [1, 2, 3], 0, 2),
    ],
)
def test_the_plan_is_a_prefix_and_a_period_that_is_repeated_and_cut(layers, prefix, period, times, tail):
    config = with_windows(prefix, period, layers=layers)
    plan = config.layer_plan
    expected = list(itertools.islice(itertools.chain(prefix, itertools.cycle(period)), layers))
    assert windows_of([*plan.prefix, *plan.period * plan.times, *plan.tail]) == expected
    assert (plan.times, len(plan.tail)) == (times, tail)
    assert sorted(windows_of(config.kinds)) == sorted(set(expected))
    specs = tfm.encoder_specs(config).layers
    assert [len(part) for part in (specs.prefix, specs.period, specs.tail)] == [
        min(len(prefix), layers),
        len(period) if times else 0,
        tail,
    ]
    assert {spec.shape[0] for spec in jax.tree.leaves(specs.period)} == ({times} if times else set())


def test_a_layer_has_the_choices_of_the_model_beside_its_own():
    plan = MIXED.layer_plan
    own = (MIXED.mixer, MIXED.position, MIXED.residual, MIXED.feed_forward)
    assert plan.period[1] == own
    assert plan.prefix[0][:2] == own[:2]
    assert not plan.prefix[0].residual.mixer_norm
    assert plan.period[0].position.base == 20.0
    assert plan.period[0].residual == own[2]
    assert plan.tail == plan.period[:1]
    assert [options.base for options in MIXED.positions] == [700.0, 20.0]


@pytest.mark.parametrize("values", [{"prefix": 1}, {"layers": 3, "period": 2}, {"layers": 2, "period": 3}])
def test_layers_that_cannot_be_shared(values):
    with pytest.raises(ValueError, match="share_layers=true shares whole periods; leave out the prefix, or choose"):
        tfm.override(CONFIG, {"share_layers": True, **values})


@pytest.mark.slow
@pytest.mark.parametrize("period", [1, 2])
def test_shared_layers_are_a_stack_of_equal_ones(period):
    values = {"layers": 4, "period": period} | ({"period.0.residual": "parallel"} if period == 2 else {})
    config = tfm.override(PLAIN, values, {"share_layers": True})
    model, x = parameters(config), inputs()
    assert {leaf.shape[0] for leaf in jax.tree.leaves(model.layers)} == {1}
    assert tfm.count_params(tfm.encoder_specs(config).layers) == sum(
        leaf.size for leaf in jax.tree.leaves(model.layers)
    )
    repeated = jax.tree.map(lambda leaf: jnp.repeat(leaf, 4 // period, axis=0), model.layers)
    expected = states(dataclasses.replace(model, layers=repeated), tfm.override(PLAIN, values), x, context_of(x))
    for scan in (True, False):
        y = states(model, dataclasses.replace(config, scan=scan), x, context_of(x))
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def parameters(config):
    """As initialized, plus noise, so that no two biases or norms are the same."""
    model = random_params(tfm.encoder_specs(config))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: leaf + jax.device_put(np.float32(0.1 * rng.normal(size=leaf.shape))), model)


def inputs(rows=2, length=6):
    return jax.device_put(np.float32(np.random.default_rng(1).normal(size=(rows, length, 16))))


stack = jax.jit(tfm.stack, static_argnums=1)


@partial(jax.jit, static_argnums=1)
def states(model, config, x, context, key=None):
    """What the stack returns without its outputs."""
    return tfm.stack(model, config, x, context, key=key)[0]


@partial(jax.jit, static_argnums=1)
def by_loop(model, config, x, context, key=None):
    """x [B,T,D] through all blocks, one after the other in Python, and their outputs."""
    plan, layers = config.layer_plan, model.layers
    kinds = [*plan.prefix, *plan.period * plan.times, *plan.tail]
    repeated = [jax.tree.map(itemgetter(row), trees) for row in range(plan.times) for trees in layers.period]
    keys = [None] * config.layers if key is None else jax.random.split(key, config.layers)
    outputs = []
    for kind, layer, layer_key in zip(kinds, [*layers.prefix, *repeated, *layers.tail], keys, strict=True):
        x, output = run_block(layer, config, x, context, layer_key, kind)
        outputs.append(output)
    return x if model.norm is None else norm(config, model.norm, x), outputs


@pytest.mark.parametrize(
    ("config", "scan"),
    [
        (tfm.override(CONFIG, {"position": "alibi"}), True),
        pytest.param(MIXED, True, marks=pytest.mark.slow),
        pytest.param(MIXED, False, marks=pytest.mark.slow),
        pytest.param(TWO_KINDS, True, marks=pytest.mark.slow),
    ],
    ids=["plain", "mixed", "unrolled", "two kinds"],
)
def test_a_stack_is_a_loop_over_blocks(config, scan):
    """Results, and what `by_layer` returns of every layer in order; recording changes nothing."""
    config = dataclasses.replace(config, scan=scan)
    model, x = parameters(config), inputs()
    context = context_of(x, tfm.segments(jnp.array([[0] * 6, [0, 0, 0, 0, 1, 1]])), record=True, record_inputs=True)
    expected, outputs = by_loop(model, config, x, context)
    y, recorded = stack(model, config, x, context)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(states(model, config, x, context_of(x, context.mask)), expected, rtol=1e-4, atol=1e-4)
    layers = tfm.by_layer(config, recorded)
    assert len(layers) == config.layers
    for layer, output in zip(layers, outputs, strict=True):
        assert jax.tree.structure(layer) == jax.tree.structure(output)
        np.testing.assert_allclose(layer.inputs, output.inputs, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(layer.weights, output.weights, rtol=1e-4, atol=1e-5)
    assert len({float(layer.weights.max()) for layer in layers}) == config.layers


@pytest.mark.parametrize("scan", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_attention_weights_are_those_of_the_inputs_of_each_layer(scan):
    config = dataclasses.replace(PLAIN, scan=scan)
    model, x, mask = parameters(config), inputs(), tfm.causal()
    _, recorded = stack(model, config, x, context_of(x, mask, record=True, record_inputs=True))
    angles = tfm.rotary_angles(config.position, 4, jnp.arange(6)[None])
    outputs = tfm.by_layer(config, recorded)
    assert jnp.stack([output.weights for output in outputs]).shape == (2, 2, 2, 2, 6, 6)
    for row, output in enumerate(outputs):
        attention = jax.tree.map(itemgetter(row), model.layers.period[0].mixer)
        q = tfm.linear(attention.query, "BTD,DKGH->BTKGH", output.inputs)
        k = tfm.linear(attention.key, "BTD,DKH->BTKH", output.inputs)
        expected = tfm.attention_weights(tfm.rotate(q, angles), tfm.rotate(k, angles), mask)
        np.testing.assert_allclose(output.weights, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("remat", ["dots", "offload"])
def test_recomputation_changes_nothing(remat):
    """Values and gradients, with dropout; `block` and unrolled layers are in `contracts.py`."""
    model, x = parameters(MIXED), inputs()

    def run(config):
        def loss(model):
            y = tfm.stack(model, config, x, context_of(x, tfm.causal()), key=jax.random.key(1))[0]
            return (y * inputs(1)).sum(), y

        return jax.jit(jax.value_and_grad(loss, has_aux=True))(model)

    kept, recomputed = (run(dataclasses.replace(MIXED, dropout=0.1, remat=name)) for name in ("none", remat))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), recomputed, kept)


@pytest.mark.slow
@pytest.mark.parametrize("config", [pytest.param(PLAIN, marks=pytest.mark.slow), MIXED], ids=["plain", "mixed"])
def test_every_layer_has_a_key_of_its_own(config):
    config = dataclasses.replace(config, dropout=0.5)
    model, x, key = parameters(config), inputs(1, 4), jax.random.key(0)
    expected = by_loop(model, config, x, context_of(x), key)[0]
    y = states(model, config, x, context_of(x), key)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    assert not np.allclose(y, states(model, config, x, context_of(x)), atol=0.1)


@pytest.mark.slow
def test_keys_belong_to_layers_and_not_to_repetitions():
    """Four equal layers, as a period of one and of two: the same weights and keys give the same states."""
    single = dataclasses.replace(PLAIN, layers=4, dropout=0.5)
    double = dataclasses.replace(single, period=single.period * 2)
    model, x, key = parameters(single), inputs(), jax.random.key(0)
    layers = model.layers
    split = tuple(jax.tree.map(itemgetter(slice(first, None, 2)), layers.period[0]) for first in range(2))
    model2 = dataclasses.replace(model, layers=dataclasses.replace(layers, period=split))
    expected = states(model, single, x, context_of(x), key)
    np.testing.assert_allclose(states(model2, double, x, context_of(x), key), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "reach"),
    [
        pytest.param({"mixer.pattern": "sliding", "mixer.pattern.window": 3}, 2, marks=pytest.mark.slow),
        pytest.param({"mixer.pattern": "sliding", "mixer.pattern.window": 5}, 4, marks=pytest.mark.slow),
        (
            {"period": 2, "period.1.mixer": "softmax", "period.1.mixer.pattern": "sliding"}
            | {"period.1.mixer.pattern.window": 3},
            5,
        ),
    ],
)
def test_two_layers_with_a_window_reach_twice_as_far(values, reach):
    """By gradient: an encoder's token sees window / 2 on either side, and everything where a layer sees all."""
    config = tfm.override(CONFIG, values)
    model, x = parameters(config), inputs(1)
    jacobian = jax.jit(jax.jacrev(lambda x: tfm.stack(model, config, x, context_of(x))[0]))(x)
    influence = np.abs(jacobian).max(axis=(0, 2, 3, 5)) > 0
    np.testing.assert_array_equal(influence, np.abs(np.subtract.outer(np.arange(6), np.arange(6))) <= reach)


@pytest.mark.parametrize("residual", ["pre", "parallel", "post"])
def test_schemes_that_leave_the_stream_as_it_is_have_a_last_norm(residual):
    config = tfm.override(PLAIN, {"residual": residual})
    model, x = parameters(config), inputs()
    assert (model.norm is None) == (residual == "post")
    if model.norm is not None:
        y = states(model.replace(norm=None), config, x, context_of(x))
        expected = tfm.layer_norm(model.norm, y, config.norm_eps)
        np.testing.assert_allclose(states(model, config, x, context_of(x)), expected, rtol=1e-4, atol=1e-5)


def test_unstack():
    tree = {"a": jnp.arange(6).reshape(3, 2), "b": None, "c": jax.random.split(jax.random.key(0), 3)}
    parts = unstack(tree, 3)
    assert [part["a"].tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert [part["b"] for part in parts] == [None] * 3
    assert all(part["c"] == key for part, key in zip(parts, tree["c"], strict=True))


@pytest.mark.slow
def test_a_function_of_the_parameters_of_every_layer():
    """`map_layers` keeps the order that `by_layer` reads."""
    model = parameters(MIXED)
    tops = map_layers(lambda layer: layer.feed_forward.up.kernel[0, 0], MIXED, model.layers)
    layers = model.layers
    expected = [tree.feed_forward.up.kernel[0, 0] for tree in layers.prefix]
    for row in range(2):
        expected += [tree.feed_forward.up.kernel[row, 0, 0] for tree in layers.period]
    expected += [tree.feed_forward.up.kernel[0, 0] for tree in layers.tail]
    assert tfm.by_layer(MIXED, tops) == expected
    shared = tfm.override(CONFIG, {"layers": 3, "share_layers": True})
    model = parameters(shared)
    tops = map_layers(lambda layer: layer.feed_forward.up.kernel[0, 0], shared, model.layers)
    assert tfm.by_layer(shared, tops) == [model.layers.period[0].feed_forward.up.kernel[0, 0, 0]] * 3
