"""Reversible layers: values are those of a loop, gradients those of stored activations, memory that of one layer."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import attention
from oracles import residuals as oracle

import tfm

pytestmark = [pytest.mark.usefixtures("strict")]

BASE = tfm.override(
    tfm.Config(layers=3, heads=2, width=8, vocab=20, pad_vocab_to=1, length=8, dropout=0.0, init_std=0.3),
    {"residual": "reversible", "input.norm": False},
)
TOKENS = jnp.array([[1, 2, 3, 4], [5, 6, 7, 8]])


def parameters(specs):
    """Random numbers in place of every parameter."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda spec: jax.device_put(np.float32(0.4 * rng.normal(size=spec.shape))), specs)


def test_values_are_those_of_a_loop():
    params = parameters(tfm.encoder_specs(BASE))
    first = second = oracle.embedded(params, BASE, TOKENS)
    for block in oracle.unstacked(params.layers):
        first = first + attention(block.mixer, oracle.normalized(block.residual.mixer, second))
        second = second + oracle.fed_forward(block.feed_forward, oracle.normalized(block.residual.feed_forward, first))
    norm = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params.norm)
    states = jax.jit(tfm.encoder, static_argnums=1)(params, BASE, TOKENS)
    np.testing.assert_allclose(states, oracle.normalized(norm, (first + second) / 2), rtol=1e-4, atol=1e-4)


def gradients(config, is_stored, dtype="float32"):
    """The gradient of a loss of all parameters of a stack, and of what it reads.

    is_stored: layers return what they have read too, so that all of it is stored
    """
    config = dataclasses.replace(config, dtype=dtype)
    params = parameters(tfm.encoder_specs(config, cross=True))
    rng = np.random.default_rng(1)
    x, states, weights = (jax.device_put(np.float32(rng.normal(size=(2, 4, config.width)))) for _ in range(3))
    context = tfm.AttentionContext(
        tfm.default_positions(TOKENS), tfm.padding(TOKENS != 8), causal=True, record_inputs=is_stored
    )

    def loss(params, x, states):
        memory = tfm.cross_keys_values(params, config, states.astype(config.dtype), TOKENS != 1)
        y = tfm.stack(params, config, x.astype(config.dtype), context, memory=memory, key=jax.random.key(3))[0]
        return (y.astype(jnp.float32) * weights).sum()

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(params, x, states)


CASES = {
    "scanned": {"dropout": 0.2},
    "unrolled": {"scan": False},
    "kinds": {
        "layers": 6,
        "position": "t5",
        "prefix": 1,
        "period": 2,
        "period.0.mixer": "softmax",
        "period.0.mixer.pattern": "sliding",
    },
    "shared": {"share_layers": True, "position": "transformer_xl"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [case if case == "scanned" else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_gradients_are_those_of_stored_activations(name):
    config = tfm.override(BASE, CASES[name])
    for leaf, expected in zip(*map(jax.tree.leaves, (gradients(config, False), gradients(config, True))), strict=True):
        scale = float(np.abs(expected).max(initial=0.0))
        np.testing.assert_allclose(leaf, expected, rtol=1e-4, atol=1e-5 * scale + 1e-5)


@pytest.mark.slow
def test_shared_layers_without_dropout():
    """No leaf has a row for each layer."""
    config = tfm.override(BASE, {"share_layers": True})
    params = parameters(tfm.encoder_specs(config))
    context = tfm.AttentionContext(tfm.default_positions(TOKENS))
    x = jax.device_put(np.float32(np.random.default_rng(2).normal(size=(2, 4, 8))))

    def loss(params, context):
        return (tfm.stack(params, config, x, context)[0] * jnp.cos(x)).sum()

    stored = dataclasses.replace(context, record_inputs=True)
    results = [jax.jit(jax.grad(loss))(params, pass_context) for pass_context in (context, stored)]
    for leaf, expected in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_bfloat16_inverts_streams_of_float32():
    config = dataclasses.replace(BASE, layers=12)
    for leaf, expected in zip(
        *map(jax.tree.leaves, (gradients(config, False, "bfloat16"), gradients(config, True, "bfloat16"))), strict=True
    ):
        scale = float(np.abs(expected).max(initial=0.0))
        assert float(np.abs(leaf - expected).max()) <= 0.05 * scale + 1e-3


def temporary_bytes(config):
    """What a training step needs beside parameters and gradients."""
    specs = tfm.encoder_specs(config)
    params = jax.tree.map(lambda spec: jax.ShapeDtypeStruct(spec.shape, jnp.float32), specs)
    tokens = jax.ShapeDtypeStruct((8, 64), jnp.int32)
    loss = lambda params, tokens: tfm.encoder(params, config, tokens).sum()
    return (
        jax.jit(jax.grad(loss), static_argnums=()).lower(params, tokens).compile().memory_analysis().temp_size_in_bytes
    )


@pytest.mark.slow
def test_memory_does_not_grow_with_layers():
    """Activations of 4 and of 16 layers; those of pre-norm layers grow."""
    config = tfm.override(BASE, {"width": 32, "length": 64, "vocab": 64})
    growth = {}
    for scheme in ("reversible", "pre"):
        few, many = (
            temporary_bytes(tfm.override(config, {"residual": scheme, "layers": layers})) for layers in (4, 16)
        )
        growth[scheme] = (many - few) / 12
    assert growth["reversible"] < 0.1 * 8 * 64 * 32 * 4
    assert growth["pre"] > 5 * 8 * 64 * 32 * 4


def test_all_layers_need_both_streams():
    with pytest.raises(ValueError, match="residual=reversible has two streams, which all layers need"):
        tfm.override(BASE, {"period": 2, "period.1.residual": "pre"})
