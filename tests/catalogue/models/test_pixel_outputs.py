"""Outputs for every pixel: places of cells against a loop, resizing against jax's, heads and models in stages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.catalogue.models.pixel_outputs import bilinear
from train.tasks import presets

SMALL = {"layers": 1, "width": 16, "heads": 2, "ffn": 16, "classes": 3, "input.size": 8, "input.patch": 4}


def _model(**fields):
    return tfm.override(presets.model("segment-micro"), SMALL | fields)


@pytest.mark.parametrize("dense", [False, True])
def test_cells_stand_where_a_loop_puts_them(dense):
    model = _model(**{"input.image_width": 12})
    params = random_params(tfm.pixel_specs(model, 3, 4, dense))
    hidden = jax.random.normal(jax.random.key(0), (2, 1 + 2 * 3, 16))
    outputs = np.asarray(tfm.pixel_outputs(params, model, hidden, (8, 12, 3)))
    states = np.asarray(hidden, np.float64)[:, 1:]
    if dense:
        states = states @ np.asarray(params.dense.kernel, np.float64) + np.asarray(params.dense.bias, np.float64)
        states = np.asarray(jax.nn.gelu(states, approximate=False))
    logits = states @ np.asarray(params.output.kernel, np.float64) + np.asarray(params.output.bias, np.float64)
    for row, y, x, channel in np.ndindex(*outputs.shape):
        patch, cell = (y // 4) * 3 + x // 4, (y % 4) * 4 + x % 4
        assert outputs[row, y, x, channel] == pytest.approx(logits[row, patch, 3 * cell + channel], abs=2e-4)


@pytest.mark.parametrize(("size", "resized"), [(2, 8), (3, 7), (4, 4), (8, 3), (1, 5)])
def test_resizing_is_that_of_jax(size, resized):
    expected = jax.image.resize(jnp.eye(size), (resized, size), "linear", antialias=False)
    np.testing.assert_allclose(bilinear(size, resized), expected, atol=1e-6)


def test_outputs_of_patches_are_resized_to_pixels():
    model = _model()
    params = random_params(tfm.pixel_specs(model, 3))
    hidden = jax.random.normal(jax.random.key(0), (2, 5, 16))
    cells = tfm.pixel_outputs(params, model, hidden, (2, 2, 3))
    expected = jax.image.resize(cells, (2, 8, 8, 3), "linear")
    np.testing.assert_allclose(tfm.pixel_outputs(params, model, hidden, (8, 8, 3)), expected, atol=1e-5)


def test_outputs_that_make_no_square_are_refused():
    model = _model()
    params = random_params(tfm.pixel_specs(model, 3, 2))
    with pytest.raises(ValueError, match="12 outputs of a patch are no square of cells with 2 numbers each"):
        tfm.pixel_outputs(params, model, jnp.ones((2, 5, 16)), (8, 8, 2))


@pytest.mark.slow
def test_a_model_in_stages_has_the_cells_of_its_last_grid():
    model = presets.model("swin-mini", classes=3, width=12, heads=1)
    rows, columns = model.stage_configs[-1].input.grid
    params = random_params(tfm.pixel_specs(model, 3, 2))
    pixels = jax.random.normal(jax.random.key(0), (1, *model.input.pixels))
    hidden = tfm.features(params.encoder, params.mix, model, pixels)
    assert tfm.pixel_outputs(params, model, hidden, (2 * rows, 2 * columns, 3)).shape == (1, 2 * rows, 2 * columns, 3)
    assert tfm.pixel_outputs(params, model, hidden, (32, 32, 3)).shape == (1, 32, 32, 3)
