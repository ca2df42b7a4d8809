"""Decode states: where they are written, what they hold, and what does not matter to them.

That a model with a cache computes what it does without is in `contracts.py`, for every variant.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.attention.project import swap_heads
from tfm.decoding import generate
from tfm.decoding.cache import separate_cache
from tfm.mixers.softmax import KeysValues, cached_attend

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.override(
    tfm.Config(
        layers=2, heads=4, kv_heads=2, width=16, ffn=24, vocab=60, pad_vocab_to=64, length=16, dropout=0.0, init_std=0.3
    ),
    {"input.token_types": None},
)
ROTARY = tfm.override(CONFIG, {"position": "rotary"})
# A prefix of one layer, a period of two that runs twice, and a tail of one.
MIXED = tfm.override(
    ROTARY,
    {"layers": 6, "residual": "pre", "prefix": 1, "prefix.0.residual": "parallel", "period": 2},
    {"period.0.mixer": "softmax", "period.0.mixer.pattern": "sliding", "period.0.mixer.pattern.window": 3},
)
TOKENS = jnp.array([[5, 59, 0, 7, 7, 31, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8]])
NEAR = dict(rtol=1e-4, atol=1e-5)


def model_of(config):
    return random_params(tfm.causal_lm_specs(config))


prefill = jax.jit(tfm.prefill, static_argnums=(1, 4))
extend = jax.jit(tfm.extend, static_argnums=1)


def read(config, model, parts, starts, slots=12):
    """Hidden states [B,T,D] of all parts, the first of which fills the cache, and the cache after them."""
    x, cache = prefill(model.decoder, config, parts[0], starts, slots)
    states = [x]
    for part in parts[1:]:
        x, cache = extend(model.decoder, config, part, cache)
        states.append(x)
    return jnp.concatenate(states, axis=1), cache


def states_of(config, model, tokens=TOKENS):
    """Hidden states without a cache."""
    return jax.jit(tfm.decoder, static_argnums=1)(model.decoder, config, tokens)


def rows_apart(tokens, *lengths):
    return jnp.split(tokens, np.cumsum(lengths)[:-1], axis=1)


@pytest.mark.slow
def test_a_cache_holds_all_positions_where_context_shards_them():
    """Prompts and later parts whose length the devices divide; rows, too, and heads."""
    model = model_of(ROTARY)
    parts, starts = rows_apart(TOKENS, 4, 2, 2), jnp.array([0, 2])
    expected, expected_cache = read(ROTARY, model, parts, starts)
    mesh = tfm.make_mesh(2, 1, 2, 2)
    with jax.set_mesh(mesh):
        model = jax.device_put(model, tfm.shardings(tfm.causal_lm_specs(ROTARY), mesh))
        parts, starts = jax.device_put((parts, starts), jax.NamedSharding(mesh, jax.P("data")))
        states, cache = read(ROTARY, model, parts, starts)
    actual = jax.tree.leaves((states, cache))
    for leaf, reference in zip(actual, jax.tree.leaves((expected, expected_cache)), strict=True):
        np.testing.assert_allclose(leaf, reference, **NEAR)
    assert jax.typeof(cache.states.period[0].keys).sharding.spec[3] is None


@pytest.mark.slow
def test_every_layer_has_a_state():
    """In the form of the layers: a row for each repetition, one row in prefix and tail; a window of 3 tokens takes 2
    slots."""
    model = model_of(MIXED)
    states, cache = read(MIXED, model, rows_apart(TOKENS, 3, 1, 3, 1), jnp.zeros(2, jnp.int32))
    np.testing.assert_allclose(states, states_of(MIXED, model), **NEAR)
    assert int(cache.length) == 8
    parts = cache.states.prefix, cache.states.period, cache.states.tail
    assert [[state.keys.shape for state in part] for part in parts] == [
        [(1, 2, 2, 12, 4)],
        [(2, 2, 2, 2, 4), (2, 2, 2, 12, 4)],
        [(1, 2, 2, 2, 4)],
    ]
    layers = tfm.by_layer(MIXED, cache.states)
    for layer in layers:
        assert layer.keys.shape == layer.values.shape
        assert (np.asarray(layer.keys[:, :, :8]) != 0).any(axis=(1, 3)).all()
        np.testing.assert_array_equal(layer.keys[:, :, 8:], 0)
    assert len({float(layer.keys.max()) for layer in layers}) == 6


@pytest.mark.slow
def test_logits_are_those_of_the_states():
    model = model_of(ROTARY)
    states, _ = read(ROTARY, model, rows_apart(TOKENS, 3, 5), jnp.zeros(2, jnp.int32))
    logits = jax.jit(tfm.causal_lm, static_argnums=1)(model, ROTARY, TOKENS)
    np.testing.assert_allclose(tfm.next_logits(model, ROTARY, states), logits, rtol=1e-4, atol=1e-4)
    assert not np.allclose(logits[:, 1:], logits[:, :-1], atol=1e-2)


@pytest.mark.slow
def test_a_token_at_a_time_from_the_first_on():
    model = model_of(ROTARY)
    states, cache = read(ROTARY, model, rows_apart(TOKENS, 1, 1, 1, 1, 4), jnp.zeros(2, jnp.int32), slots=8)
    np.testing.assert_allclose(states, states_of(ROTARY, model), **NEAR)
    assert int(cache.length) == cache.states.period[0].keys.shape[3] == 8


def test_what_the_free_slots_and_the_padding_hold_does_not_matter():
    model, starts = model_of(ROTARY), jnp.array([2, 0])
    _, cache = read(ROTARY, model, [TOKENS[:, :5]], starts)
    slot = jnp.arange(12)[None]
    unused = ((slot >= 5) | (slot < starts[:, None]))[None, :, None, :, None]
    (state,) = cache.states.period

    @jax.jit
    def extended(keys, values):
        states = dataclasses.replace(cache.states, period=(KeysValues(keys, values),))
        return tfm.extend(model.decoder, ROTARY, TOKENS[:, 5:7], dataclasses.replace(cache, states=states))[0]

    expected = extended(state.keys, state.values)
    spoilt = extended(jnp.where(unused, 1e6, state.keys), jnp.where(unused, -1e6, state.values))
    np.testing.assert_array_equal(spoilt, expected)
    broken = extended(state.keys, jnp.where(unused, state.values, -1e6))
    assert not np.allclose(broken, expected, atol=1e-2)


def test_extending_writes_behind_and_touches_nothing_else():
    model = model_of(CONFIG)
    _, before = read(CONFIG, model, [TOKENS[:, :5]], jnp.zeros(2, jnp.int32))
    _, after = read(CONFIG, model, rows_apart(TOKENS[:, :7], 5, 2), jnp.zeros(2, jnp.int32))
    for old, extended in zip(*map(jax.tree.leaves, (before.states, after.states)), strict=True):
        np.testing.assert_array_equal(old[..., 5:, :], 0)
        np.testing.assert_array_equal(extended[..., 7:, :], 0)
        np.testing.assert_allclose(extended[..., :5, :], old[..., :5, :], **NEAR)
        assert (np.asarray(extended[..., 5:7, :]) != 0).any(axis=(2, 4)).all()


@pytest.mark.slow
@pytest.mark.parametrize("mask", [tfm.causal(), tfm.window(2, 0), None], ids=["causal", "window", "unmasked"])
def test_cached_attention_adds_a_bias_and_asks_the_mask(mask):
    """As the last rows of plain attention over everything; without a mask the new tokens see each other both ways."""
    rng = np.random.default_rng(0)
    q, k, v = (
        jax.device_put(np.float32(rng.normal(size=shape))) for shape in ((2, 7, 2, 2, 4), (2, 7, 2, 4), (2, 7, 2, 4))
    )
    bias = tfm.alibi(4, kv_heads=2)
    expected = tfm.attend(q, k, v, mask, bias)
    pad = lambda rows: jnp.pad(rows[:, :4], ((0, 0), (0, 5), (0, 0), (0, 0)), constant_values=9)
    state = KeysValues(swap_heads(pad(k)), swap_heads(pad(v)))
    y = cached_attend(q[:, 4:], (k[:, 4:], v[:, 4:]), state, jnp.int32(4), mask, bias)
    np.testing.assert_allclose(y, expected[:, 4:], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_bfloat16_is_kept_as_such():
    config = dataclasses.replace(ROTARY, dtype="bfloat16")
    model = model_of(config)
    states, cache = read(config, model, rows_apart(TOKENS, 6, 1, 1), jnp.zeros(2, jnp.int32))
    (state,) = cache.states.period
    assert {states.dtype, state.keys.dtype, state.values.dtype} == {jnp.dtype(jnp.bfloat16)}
    wide = np.asarray(states_of(ROTARY, model))
    assert np.abs(np.asarray(states, np.float32) - wide).max() < 0.1 * np.abs(wide).max()


def test_no_token_slices_the_kernels_or_states_of_all_layers():
    """A slice of a stacked leaf is a copy; the loop that writes has kernels and states of single layers alone."""
    config = tfm.Config(layers=3, heads=2, width=8, ffn=24, vocab=20, pad_vocab_to=1, length=32, scan=False)
    model = random_params(tfm.causal_lm_specs(config))
    writer = tfm.Generation(model, config, [[1, 2, 3]], 8)
    writer.advance(1)
    arguments = (model, writer._state, writer.strategy, writer.stop, np.int32(8))
    program = jax.make_jaxpr(generate.advance, static_argnums=0)(config, *arguments)
    (inner,) = program.eqns
    (loop,) = (equation for equation in inner.params["jaxpr"].eqns if equation.primitive.name == "while")
    shapes = [variable.aval.shape for variable in loop.invars]
    assert (8, 24) in shapes
    assert (3, 8, 24) not in shapes
    assert (1, 2, 31, 4) in shapes
    assert not any(len(shape) > 4 for shape in shapes)


@pytest.mark.slow
def test_states_are_written_in_place():
    """A program that adds a token to a donated cache has no room for a second one."""
    config, slots = dataclasses.replace(ROTARY, scan=False), 4096
    model = tfm.separate_layers(model_of(config), config)
    cache = tfm.prefill(model.decoder, config, TOKENS, jnp.zeros(2, jnp.int32), slots)[1]
    cache = separate_cache(config, cache)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(cache.states))
    step = jax.jit(lambda model, token, cache: tfm.extend(model, config, token, cache), donate_argnums=2)
    assert step.lower(model.decoder, TOKENS[:, :1], cache).compile().memory_analysis().temp_size_in_bytes < size / 2
