import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.config.positions import Rotary

pytestmark = pytest.mark.usefixtures("strict")

POSITIONS = jnp.array([[0, 1, 2, 3, 0], [500, 7, 7, 1, 4]])
CONFIG = tfm.override(
    tfm.Config(layers=2, heads=2, kv_heads=1, width=12, ffn=16, vocab=60, pad_vocab_to=1, init_std=0.5, dropout=0.0),
    {"position": "rotary"},
)


@pytest.mark.parametrize("pairs", ["halves", "adjacent"])
@pytest.mark.parametrize("base", [10_000.0, 100.0])
def test_rotation_is_the_formula_of_the_paper(base, pairs):
    """The pair (n, n + H/2), or (2n, 2n + 1), turns by position / base^(2n/H): queries [B,T,K,G,H], keys [B,T,K,H]."""
    angles = tfm.rotary_angles(Rotary(base=base), 6, POSITIONS)
    assert (angles.shape, angles.dtype) == ((2, 5, 3), jnp.float32)
    for shape in ((2, 5, 1, 2, 6), (2, 5, 1, 6)):
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        expected = np.zeros(shape)
        for index in np.ndindex(shape[:-1]):
            for n in range(3):
                angle = int(POSITIONS[index[:2]]) / base ** (2 * n / 6)
                a, b = (n, n + 3) if pairs == "halves" else (2 * n, 2 * n + 1)
                expected[index][a] = x[index][a] * math.cos(angle) - x[index][b] * math.sin(angle)
                expected[index][b] = x[index][a] * math.sin(angle) + x[index][b] * math.cos(angle)
        np.testing.assert_allclose(tfm.rotate(x, angles, pairs), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["rotary", "learned", "sinusoidal", "t5", "alibi", "none"])
def test_only_rotary_positions_rotate(name):
    config = tfm.override(CONFIG, {"position": name})
    position, context = tfm.position_of(config.position), tfm.AttentionContext(POSITIONS)
    q, k = jnp.ones((2, 5, 1, 2, 6)), jnp.ones((2, 5, 1, 6))
    shared = jnp.ones((32, 1, 2)) if name == "t5" else None
    call = tfm.LayerCall(
        config.position, config, None, position.prepare(tfm.LayerCall(config.position, config, shared), context), None
    )
    rotated_q, rotated_k, bias = position.score(call, q, k, None)
    assert (rotated_q is q) == (rotated_k is k) == (name != "rotary")
    assert (bias is None) == (name not in ("t5", "alibi"))
    if name == "rotary":
        angles = tfm.rotary_angles(config.position, 6, POSITIONS)
        np.testing.assert_array_equal(rotated_q, tfm.rotate(q, angles))
        np.testing.assert_array_equal(rotated_k, tfm.rotate(k, angles))


def test_rotation_is_computed_in_float32():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 1, 6)), jnp.bfloat16)
    angles = tfm.rotary_angles(Rotary(), 6, POSITIONS)
    y = tfm.rotate(x, angles)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_array_equal(y, tfm.rotate(x.astype(jnp.float32), angles).astype(jnp.bfloat16))


def test_scores_depend_on_distances_alone():
    """A text that stands elsewhere has the same hidden states; one whose tokens stand further apart has not."""
    model = random_params(tfm.encoder_specs(CONFIG))
    tokens, positions = jnp.array([[5, 59, 0, 7, 7, 31]]), jnp.arange(6)[None]
    states = jax.jit(lambda positions: tfm.encoder(model, CONFIG, tokens, positions=positions))
    expected = states(positions)
    np.testing.assert_allclose(states(positions + 100), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(states(None), expected, rtol=1e-5, atol=1e-5)
    assert not np.allclose(states(2 * positions), expected, atol=1e-2)


def test_a_fraction_of_a_head_is_rotated_as_a_head_of_that_size():
    x = jax.random.normal(jax.random.key(0), (2, 5, 3, 8))
    y = tfm.rotate(x, tfm.rotary_angles(Rotary(fraction=0.5), 8, POSITIONS))
    expected = tfm.rotate(x[..., :4], tfm.rotary_angles(Rotary(), 4, POSITIONS))
    np.testing.assert_allclose(y[..., :4], expected, atol=1e-6)
    np.testing.assert_array_equal(y[..., 4:], x[..., 4:])
