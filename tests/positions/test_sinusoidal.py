import math

import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.usefixtures("strict")

POSITIONS = jnp.array([[0, 1, 2, 3, 0], [500, 7, 7, 1, 4]])


@pytest.mark.parametrize("width", [6, 5])
def test_the_formula_of_the_paper(width):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d))."""
    y = tfm.sinusoidal(POSITIONS, width)
    assert (y.shape, y.dtype) == ((2, 5, width), jnp.float32)
    for b in range(2):
        for t in range(5):
            for column in range(width):
                angle = int(POSITIONS[b, t]) / 10000 ** (column // 2 * 2 / width)
                expected = math.cos(angle) if column % 2 else math.sin(angle)
                assert abs(float(y[b, t, column]) - expected) < 1e-4


@pytest.mark.parametrize("offset", [1, 17])
def test_an_offset_is_a_linear_map(offset):
    """PE(pos + k) = M PE(pos), with one M for all positions: a rotation of each pair (Vaswani et al. 2017, 3.5)."""
    width = 8
    rotation = np.zeros((width, width))
    for pair in range(width // 2):
        angle = offset / 10000 ** (2 * pair / width)
        block = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        rotation[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = block
    before, after = (np.asarray(tfm.sinusoidal(POSITIONS + shift, width)) for shift in (0, offset))
    np.testing.assert_allclose(after, before @ rotation.T, atol=1e-4)


@pytest.mark.parametrize("width", [6, 5])
def test_sines_before_cosines(width):
    interleaved = np.asarray(tfm.sinusoidal(POSITIONS, width))
    halves = tfm.sinusoidal(POSITIONS, width, "halves")
    np.testing.assert_array_equal(halves, np.concatenate([interleaved[..., 0::2], interleaved[..., 1::2]], axis=-1))


@pytest.mark.parametrize("order", ["interleaved", "halves"])
def test_embeddings_of_any_width_take_them(order):
    """Those of the config, for embeddings that are narrower than the layers."""
    values = {"position": "sinusoidal", "position.order": order, "width": 16, "input.width": 6}
    config = tfm.override(tfm.Config(), values)
    position = tfm.position_of(config.position)
    x = jnp.zeros((2, 5, 6))
    y = position.embed(
        tfm.LayerCall(config.position, config, position.embed_specs(config.position, config)), x, POSITIONS
    )
    np.testing.assert_array_equal(y, tfm.sinusoidal(POSITIONS, 6, order))
