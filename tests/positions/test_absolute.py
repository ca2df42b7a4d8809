import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.positions.absolute import no_positions

pytestmark = pytest.mark.usefixtures("strict", "quick")

POSITIONS = jnp.array([[0, 1, 2, 3, 0], [500, 7, 7, 1, 4]])


@pytest.mark.parametrize("width", [6, 5])
def test_sinusoidal_is_the_formula_of_the_paper(width):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d))."""
    y = tfm.sinusoidal(None, POSITIONS, width)
    assert (y.shape, y.dtype) == ((2, 5, width), jnp.float32)
    for b in range(2):
        for t in range(5):
            for column in range(width):
                angle = int(POSITIONS[b, t]) / 10000 ** (column // 2 * 2 / width)
                expected = math.cos(angle) if column % 2 else math.sin(angle)
                assert abs(float(y[b, t, column]) - expected) < 1e-4


def test_learned_positions_are_rows_of_a_table():
    table = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
    positions = jnp.array([[0, 8, 3], [2, 2, 1]])
    np.testing.assert_array_equal(tfm.learned(jnp.asarray(table), positions, 6), table[np.asarray(positions)])


def test_no_positions_are_zeros():
    np.testing.assert_array_equal(no_positions(None, POSITIONS, 6), np.zeros((2, 5, 6)))


def test_only_learned_positions_have_a_table():
    assert tfm.position_specs(tfm.Config(length=9, width=6)).shape == (9, 6)
    assert tfm.position_specs(tfm.Config(position="sinusoidal")) is None
    assert tfm.position_specs(tfm.Config(position="none")) is None
    assert tfm.position_specs(tfm.Config(position="rotary")) is None


def rotary_config(**fields):
    return tfm.Config(
        layers=2,
        heads=2,
        kv_heads=1,
        width=12,
        ffn=16,
        vocab=60,
        vocab_multiple=1,
        position="rotary",
        dropout=0.0,
        **fields,
    )


@pytest.mark.parametrize("base", [10_000.0, 100.0])
def test_rotation_is_the_formula_of_the_paper(base):
    """The pair (n, n + H/2) turns by position / base^(2n/H): queries [B,T,K,G,H] and keys [B,T,K,H] alike."""
    config = rotary_config(rotary_base=base)
    turns = tfm.rotary(config, POSITIONS)
    assert (turns.shape, turns.dtype) == ((2, 5, 3), jnp.float32)
    for shape in ((2, 5, 1, 2, 6), (2, 5, 1, 6)):
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        expected = np.zeros(shape)
        for place in np.ndindex(shape[:-1]):
            for n in range(3):
                angle = int(POSITIONS[place[:2]]) / base ** (2 * n / 6)
                one, two = x[place][n], x[place][n + 3]
                expected[place][n] = one * math.cos(angle) - two * math.sin(angle)
                expected[place][n + 3] = one * math.sin(angle) + two * math.cos(angle)
        np.testing.assert_allclose(tfm.rotate(x, turns), expected, rtol=1e-4, atol=1e-4)


def test_only_rotary_positions_turn():
    assert all(tfm.rotary(tfm.Config(position=name), POSITIONS) is None for name in ("learned", "sinusoidal", "none"))
    x = np.ones((2, 5, 1, 6), np.float32)
    assert tfm.rotate(x, None) is x


def test_rotation_is_computed_in_float32():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 1, 6)), jnp.bfloat16)
    turns = tfm.rotary(rotary_config(), POSITIONS)
    y = tfm.rotate(x, turns)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_array_equal(y, tfm.rotate(x.astype(jnp.float32), turns).astype(jnp.bfloat16))


def test_rotary_scores_depend_on_distances_alone():
    """A text that stands elsewhere has the same hidden states; one whose tokens stand further apart has not."""
    config = rotary_config()
    model = tfm.init(tfm.encoder_specs(rotary_config(init_std=0.5)), jax.random.key(0))
    tokens, positions = jnp.array([[5, 59, 0, 7, 7, 31]]), jnp.arange(6)[None]
    states = jax.jit(lambda positions: tfm.encoder(model, config, tokens, positions=positions))
    here = states(positions)
    np.testing.assert_allclose(states(positions + 100), here, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(tfm.encoder(model, config, tokens), here, rtol=1e-5, atol=1e-5)
    assert not np.allclose(states(2 * positions), here, atol=1e-2)


def test_alibi_slopes_of_eight_heads_halve():
    """1/2, 1/4 ... 1/256 (Press et al. 2022, section 3); head n = k * G + g."""
    bias = tfm.alibi(8, kv_heads=2).dense(3, 5)
    assert (bias.shape, bias.dtype) == ((1, 2, 4, 3, 5), jnp.float32)
    for k in range(2):
        for g in range(4):
            slope = 0.5 ** (k * 4 + g + 1)
            for i in range(3):
                for j in range(5):
                    assert float(bias[0, k, g, i, j]) == pytest.approx(-slope * abs(i - j), rel=1e-6)


def test_alibi_of_other_head_numbers():
    slopes = -np.asarray(tfm.alibi(6).dense(1, 2))[0, :, 0, 0, 1]
    np.testing.assert_allclose(slopes, [2 ** (-8 * n / 6) for n in range(1, 7)], rtol=1e-6)


def test_a_bias_at_some_positions_is_a_part_of_the_whole():
    bias = tfm.alibi(4, kv_heads=2)
    i, j = np.array([3, 4]), np.array([1, 2, 5])
    part = bias(jnp.asarray(i)[None], jnp.asarray(j)[None])
    np.testing.assert_array_equal(part, np.asarray(bias.dense(6))[:, :, :, i][..., j])


def test_a_bias_is_a_pytree():
    bias = tfm.alibi(4)
    np.testing.assert_array_equal(jax.jit(lambda bias: bias.dense(3))(bias), bias.dense(3))
    assert isinstance(bias, tfm.ScoreBias)


@pytest.mark.parametrize("width", [6, 5])
def test_sines_before_cosines(width):
    alternating = np.asarray(tfm.sinusoidal(None, POSITIONS, width))
    halves = tfm.sinusoidal_halves(None, POSITIONS, width)
    np.testing.assert_array_equal(halves, np.concatenate([alternating[..., 0::2], alternating[..., 1::2]], axis=-1))


def test_a_share_of_a_head_is_turned_as_a_head_of_that_size():
    x = jax.random.normal(jax.random.key(0), (2, 5, 3, 8))
    part, whole = (
        tfm.Config(position="rotary", width=24, heads=3, rotary_share=0.5),
        tfm.Config(position="rotary", width=12, heads=3),
    )
    y = tfm.rotate(x, tfm.rotary(part, POSITIONS))
    np.testing.assert_allclose(y[..., :4], tfm.rotate(x[..., :4], tfm.rotary(whole, POSITIONS)), atol=1e-6)
    np.testing.assert_array_equal(y[..., 4:], x[..., 4:])


@pytest.mark.parametrize("both", [True, False])
def test_buckets_are_a_loop_over_pairs(both):
    """Short distances have a bucket each; those up to `bucket_distance` share ever wider ones; the rest is in the last."""
    config = tfm.Config(position="buckets", heads=6, kv_heads=3, width=12, buckets=12, bucket_distance=20)
    table = jnp.asarray(np.random.default_rng(0).normal(size=(12, 3, 2)), jnp.float32)
    found = np.asarray(tfm.t5_bias(config, table, both).dense(40, 50))
    number = 6 if both else 12
    for i in range(40):
        for j in range(50):
            later, distance = (j > i, abs(j - i)) if both else (False, max(i - j, 0))
            bucket = distance
            if distance >= number // 2:
                share = math.log(distance / (number // 2)) / math.log(20 / (number // 2))
                bucket = min(number // 2 + int(share * (number - number // 2)), number - 1)
            np.testing.assert_array_equal(found[0, :, :, i, j], table[bucket + number * later])
    assert tfm.t5_bias(tfm.Config(), table, both) is None
