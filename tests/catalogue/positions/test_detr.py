"""Positions of DETR: waves of rows and columns, which are parts of the picture."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.usefixtures("strict")

IMAGES = {"input": "patches", "input.size": 6, "input.image_width": 4, "input.patch": 2, "position": "detr"}
CONFIG = tfm.override(tfm.Config(heads=2, width=8), IMAGES)


def test_waves_are_those_of_a_loop():
    """Rows first, then columns; the last row is a whole turn of the fastest wave, and [CLS] has no place."""
    position = tfm.position_of(CONFIG.position)
    context = tfm.AttentionContext(jnp.arange(7)[None])
    waves = position.prepare(tfm.LayerCall(CONFIG.position, CONFIG), context)
    expected = np.zeros((1, 7, 8))
    for row in range(3):
        for column in range(2):
            turns = (row + 1) / 3, (column + 1) / 2
            for axis, pair in np.ndindex(2, 2):
                angle = 2 * math.pi * turns[axis] / 10_000 ** (2 * pair / 4)
                start = 4 * axis + 2 * pair
                expected[0, 1 + 2 * row + column, start : start + 2] = math.sin(angle), math.cos(angle)
    np.testing.assert_allclose(waves, expected, atol=1e-5)


def test_waves_are_added_to_what_makes_queries_and_keys(fill):
    position, layer = tfm.position_of(CONFIG.position), fill(tfm.attention_specs(CONFIG))
    waves = jnp.asarray(np.random.default_rng(0).normal(size=(1, 7, 8)), jnp.float32)
    q, k = jnp.ones((1, 7, 2, 1, 4)), jnp.ones((1, 7, 2, 4))
    moved_q, moved_k, bias = position.score(tfm.LayerCall(CONFIG.position, CONFIG, None, waves), q, k, layer)
    np.testing.assert_allclose(moved_q - q, np.einsum("btd,dkgh->btkgh", waves, layer.query.kernel), atol=1e-5)
    np.testing.assert_allclose(moved_k - k, np.einsum("btd,dkh->btkh", waves, layer.key.kernel), atol=1e-5)
    assert bias is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": "tokens"}, "position=detr counts rows and columns, which input=tokens does not have"),
        ({"width": 6}, "position=detr has pairs for rows and for columns: width=6 must be a multiple of 4"),
        ({"mixer.qk_norm": True}, "position=detr adds to what mixer.qk_norm=true has normalized"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        tfm.override(CONFIG, changes)
