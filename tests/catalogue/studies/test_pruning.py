"""Gates on heads, and models without the heads whose gates are closed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts import TOKENS, slow_unless, states_of
from oracles import heads as oracle_heads
from oracles import output, softmax
from variants import VARIANTS

import tfm
from tfm.catalogue.studies.pruning import (
    cut_axis,
    cut_config,
    cut_heads,
    gates_of,
    hard_concrete,
    head_gates,
    open_probability,
    top_heads,
    with_gates,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]

PLAIN = ["learned", "gpt3"]
ROWS = [name for name, row in VARIANTS.items() if row.prunes]


def parameters(specs):
    """Random numbers in place of every parameter."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda spec: jax.device_put(np.float32(0.3 * rng.normal(size=spec.shape))), specs)


def test_a_gate_multiplies_what_a_head_adds():
    config = tfm.Config(heads=4, kv_heads=2, width=16, head_size=4)
    layer = parameters(tfm.attention_specs(config))
    x = np.random.default_rng(0).normal(size=(2, 5, 16)).astype(np.float32)
    gates = np.float32([[0.5, 0.0], [2.0, 1.0]])
    gated = with_gates({"layer": layer}, {"layer": gates})["layer"]
    q, k, v = oracle_heads(layer, x.astype(np.float64))
    weights = softmax(np.einsum("btkgh,bskgh->bkgts", q, k) / 2)
    expected = output(layer, np.einsum("bkgts,bskgh->btkgh", weights, v) * gates[:, :, None])
    np.testing.assert_allclose(tfm.multi_head_attention(gated, config, x), expected, rtol=1e-4, atol=1e-5)


def pruned(params, specs, config, count):
    """The parameters with closed gates, and those and the configuration of the smaller model; random heads stay."""
    letter, _ = cut_axis(config)
    rng = np.random.default_rng(0)
    shapes = {name: gates.shape for name, gates in head_gates(params).items()}
    places = {name: top_heads(rng.normal(size=shape), letter, count) for name, shape in shapes.items()}
    gates = {name: gates_of(places[name], shape, letter) for name, shape in shapes.items()}
    small = cut_heads(params, specs, places, letter)
    return with_gates(params, gates), small, cut_config(config, letter, count)


def assert_declared(params, specs):
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda spec: spec.shape, specs)


@pytest.mark.parametrize("kv_heads", [None, 2])
@pytest.mark.parametrize("name", slow_unless(["gpt3"], ROWS))
def test_cut_heads_are_closed_gates(name, kv_heads):
    """With a head of its own for all keys, and in groups of two query heads."""
    row = VARIANTS[name]
    config = tfm.override(row.config, {"kv_heads": kv_heads})
    specs = tfm.encoder_specs(config)
    params = parameters(specs)
    gated, small, small_config = pruned(params, specs, config, 1 if kv_heads else 3)
    assert_declared(small, tfm.encoder_specs(small_config))
    assert small_config.heads < config.heads
    function = tfm.encoder if row.encoder else tfm.decoder
    expected, states = (states_of(function, *model, TOKENS) for model in ((config, gated), (small_config, small)))
    np.testing.assert_allclose(states, expected, rtol=1e-4, atol=1e-4)
    assert not np.allclose(expected, states_of(function, config, params, TOKENS), atol=1e-2)


@pytest.mark.slow
def test_translators_lose_heads_of_cross_attention_too():
    config = tfm.override(VARIANTS["learned"].config, {"kv_heads": None})
    specs = tfm.seq2seq_specs(config)
    params = parameters(specs)
    gated, small, small_config = pruned(params, specs, config, 2)
    assert_declared(small, tfm.seq2seq_specs(small_config))
    translate = jax.jit(tfm.seq2seq, static_argnums=1)
    expected = translate(gated, config, TOKENS, TOKENS)
    np.testing.assert_allclose(translate(small, small_config, TOKENS, TOKENS), expected, rtol=1e-4, atol=1e-4)


def test_values_of_heads_that_layers_share_are_refused():
    config = VARIANTS["t5"].config
    specs = tfm.encoder_specs(config)
    with pytest.raises(ValueError, match=r"^positions.0 has values for each head, which all layers share$"):
        pruned(parameters(specs), specs, config, 1)


def test_slopes_by_the_number_of_heads_are_refused():
    with pytest.raises(ValueError, match=r"^alibi gives a head what depends on how many heads there are$"):
        cut_config(VARIANTS["alibi"].config, "G", 1)


def test_the_best_heads_stay_in_order():
    scores = np.array([[[3.0], [1.0], [2.0], [9.0]], [[0.0], [5.0], [4.0], [0.0]]])
    np.testing.assert_array_equal(top_heads(scores, "K", 2), [[0, 3], [1, 2]])
    np.testing.assert_array_equal(top_heads(scores.reshape(2, 2, 2), "G", 1), [[[0], [1]], [[1], [0]]])
    assert gates_of(np.array([[1, 2]]), (1, 4, 1), "K").tolist() == [[[0], [1], [1], [0]]]


def test_the_hard_concrete_distribution():
    """Against the formulas of Louizos et al., and the share of its draws that are open."""
    log_alpha = jnp.linspace(-3, 3, 7)
    sigmoid = 1 / (1 + np.exp(-np.asarray(log_alpha, np.float64)))
    np.testing.assert_allclose(hard_concrete(log_alpha), np.clip(1.2 * sigmoid - 0.1, 0, 1), rtol=1e-5, atol=1e-6)
    draws = hard_concrete(jnp.broadcast_to(log_alpha, (20_000, 7)), jax.random.key(0))
    assert float(draws.min()) == 0.0
    assert float(draws.max()) == 1.0
    np.testing.assert_allclose((draws > 0).mean(0), open_probability(log_alpha), atol=0.015)
