"""One vector of a text, against a loop over its tokens; on a mesh as on one device; states of every layer."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

LENGTHS = (5, 1, 3, 8)
LOOPS = {
    "mean": lambda states: states.mean(0),
    "first": lambda states: states[0],
    "last": lambda states: states[-1],
    "max": lambda states: states.max(0),
    "ends": lambda states: np.concatenate([np.split(states[-1], 2)[0], np.split(states[0], 2)[1]]),
}


@pytest.mark.parametrize("kind", LOOPS)
def test_pools(kind, strict):
    """Padding has values that would show: large ones, and not finite ones for all but the mean."""
    hidden = np.random.default_rng(0).normal(size=(4, 8, 6)).astype(np.float32) - 3
    valid = np.arange(8) < np.array(LENGTHS)[:, None]
    hidden[~valid] = 1e6
    pooled = tfm.pool(jnp.asarray(hidden), jnp.asarray(valid), kind)
    expected = [LOOPS[kind](states[:length]) for states, length in zip(hidden, LENGTHS, strict=True)]
    np.testing.assert_allclose(pooled, expected, atol=1e-5)
    np.testing.assert_allclose(
        tfm.pool(jnp.asarray(hidden[:, :3]), None, kind), [LOOPS[kind](states[:3]) for states in hidden], rtol=1e-6
    )
    narrow = tfm.pool(jnp.asarray(hidden, jnp.bfloat16), jnp.asarray(valid), kind)
    assert narrow.dtype == jnp.bfloat16
    np.testing.assert_allclose(narrow.astype(jnp.float32), expected, rtol=0.02, atol=0.02)


def slow_but(kinds, *plain):
    """All kinds; those that are not named are slow tests."""
    return [pytest.param(kind, marks=[] if kind in plain else [pytest.mark.slow]) for kind in kinds]


@pytest.mark.parametrize("kind", slow_but(LOOPS, "last"))
def test_on_a_mesh(kind):
    hidden = np.random.default_rng(0).normal(size=(4, 8, 16)).astype(np.float32)
    valid = np.arange(8) < np.array(LENGTHS)[:, None]
    expected = tfm.pool(jnp.asarray(hidden), jnp.asarray(valid), kind)
    mesh = tfm.make_mesh(data=2, context=4)
    with jax.set_mesh(mesh):
        sharded = [jax.device_put(x, jax.NamedSharding(mesh, jax.P("data", "context"))) for x in (hidden, valid)]
        pooled = jax.jit(tfm.pool, static_argnums=2)(*sharded, kind)
    np.testing.assert_allclose(pooled, expected, atol=1e-6)


@pytest.mark.parametrize("kind", slow_but([*LOOPS, "mean_sqrt", "weighted_mean"], "mean", "last"))
def test_rows_of_several_texts(kind, strict):
    """The vector of each text is that of the text in a row of its own, on a mesh too; an absent text has zeros."""
    hidden = np.random.default_rng(0).normal(size=(2, 8, 16)).astype(np.float32) - 3
    segments = np.array([[1, 1, 1, 2, 2, 3, 0, 0], [2, 2, 2, 2, 2, 0, 0, 0]], np.int32)
    expected = np.zeros((6, 16), np.float32)
    for row, text in ((0, 0), (0, 1), (0, 2), (1, 1)):
        states = hidden[row, segments[row] == text + 1]
        expected[3 * row + text] = tfm.pool(jnp.asarray(states)[None], None, kind)[0]
    texts = tfm.segment_tokens(jnp.asarray(segments), 3)
    np.testing.assert_allclose(tfm.pool(jnp.asarray(hidden), texts, kind), expected, atol=1e-6)
    mesh = tfm.make_mesh(data=2, context=4)
    with jax.set_mesh(mesh):
        sharded = [jax.device_put(x, jax.NamedSharding(mesh, jax.P("data", "context"))) for x in (hidden, segments)]
        pooled = jax.jit(lambda hidden, segments: tfm.pool(hidden, tfm.segment_tokens(segments, 3), kind))(*sharded)
    np.testing.assert_allclose(pooled, expected, atol=1e-6)


def test_an_unknown_pool():
    with pytest.raises(ValueError, match="kind='sum' pools nothing; choose first, mean, last, max"):
        tfm.pool(jnp.ones((1, 2, 3)), None, "sum")


@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.slow), True])
def test_states_of_every_layer(fill, causal):
    """Those that a stack of the first layers alone ends with, before the last norm; the last ones are the stack's."""
    config = tfm.Config(layers=3, width=16, heads=2, vocab=30, length=8, dropout=0.0)
    params = fill(tfm.encoder_specs(config))
    tokens = jnp.array([[3, 9, 11, 4, 0]])
    valid = jnp.array([[1, 1, 1, 1, 0]]) > 0
    states = tfm.hidden_states(params, config, tokens, tfm.padding(valid), causal=causal)
    assert len(states) == 4
    stack = tfm.decoder if causal else tfm.encoder
    np.testing.assert_allclose(states[-1], stack(params, config, tokens, tfm.padding(valid)), atol=1e-5)
    np.testing.assert_allclose(states[0], tfm.embed(params.embed, config, tokens), atol=1e-6)
    assert all(not np.allclose(a, b) for a, b in pairwise(states))
