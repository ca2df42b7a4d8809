"""Outputs for every pixel: places of cells against a loop, resizing against jax's, heads and models in stages."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.catalogue.models import pixel_outputs
from tfm.catalogue.models.pixel_outputs import bilinear
from tfm.norms.batch import BatchStats
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


def segformer(**fields):
    """Two stages, of 4 x 6 and 2 x 3 patches, whose states are 8 and 12 wide."""
    values = {"layers": 1, "width": 8, "heads": 1, "ffn": 16, "mixer.factor": 2, "head.decoder_width": 5}
    values |= {"input.size": 8, "input.image_width": 12, "stages": 1, "stages.0.mixer.factor": 1}
    values |= {"stages.0.width": 12, "stages.0.heads": 3, "stages.0.ffn": 16}
    return tfm.override(presets.model("segformer-micro", classes=3), values | fields)


def test_all_stages_are_joined_as_the_paper_says():
    """Side by side at the size of the first, then a linear map, the norm by running statistics, and ReLU."""
    model = segformer()
    decoder = random_params(tfm.pixel_specs(model, 3).fusion)
    stats = BatchStats(mean=0.01 * (jnp.arange(5.0) - 2), variance=0.001 * (1 + jnp.arange(5.0)))
    decoder = dataclasses.replace(decoder, norm=dataclasses.replace(decoder.norm, stats=stats))
    rng = np.random.default_rng(0)
    states = [rng.normal(size=(2, 24, 8)).astype(np.float32), rng.normal(size=(2, 6, 12)).astype(np.float32)]
    fine, coarse = (
        x @ np.asarray(layer.kernel, np.float64) + np.asarray(layer.bias, np.float64)
        for x, layer in zip(states, decoder.stages, strict=True)
    )
    coarse = np.einsum("bhwc,Hh,Ww->bHWc", coarse.reshape(2, 2, 3, 5), bilinear(2, 4), bilinear(3, 6))
    joined = np.concatenate([coarse, fine.reshape(2, 4, 6, 5)], axis=-1) @ np.asarray(decoder.kernel, np.float64)
    normalized = (joined - np.asarray(stats.mean)) / np.sqrt(np.asarray(stats.variance) + 1e-5)
    expected = np.maximum(normalized * np.asarray(decoder.norm.scale) + np.asarray(decoder.norm.bias), 0)
    outputs = pixel_outputs._joined(decoder, model, list(map(jnp.asarray, states)))
    assert (expected > 0).mean() > 0.2
    np.testing.assert_allclose(outputs, expected.reshape(2, 24, 5), atol=1e-4)


def test_a_map_behind_a_decoder_is_refused():
    with pytest.raises(ValueError, match="head.decoder_width=5 ends with a map and an activation; leave out another"):
        tfm.pixel_specs(segformer(), 3, dense=True)
    with pytest.raises(ValueError, match="head.decoder_width=5 is for outputs of the pixels of a picture"):
        tfm.override(tfm.Config(), {"head.decoder_width": 5})


@pytest.mark.slow
@pytest.mark.parametrize("cls", [False, True])
def test_a_decoder_trains_every_stage_and_moves_its_statistics(cls):
    """Also where the last stage begins with [CLS], which is no patch, as in PVT."""
    model = segformer(**{"stages.0.cls": cls, "feed_forward": "dense"} if cls else {})
    params = random_params(tfm.pixel_specs(model, 3, 2))
    pixels = jax.random.normal(jax.random.key(0), (2, 8, 12, 3))

    def loss(params):
        hidden = tfm.pixel_features(params, model, pixels)
        return jnp.square(tfm.pixel_outputs(params, model, hidden, (8, 12, 3))).mean()

    gradient = jax.jit(jax.grad(loss))(params)
    assert all(np.asarray(jnp.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(gradient.fusion.stages))
    first = jax.tree.leaves(gradient.encoder.layers) + jax.tree.leaves(gradient.encoder.stages[0].layers)
    assert all(np.isfinite(leaf).all() for leaf in first)
    assert any(np.abs(leaf).max() > 0 for leaf in first)
    assert np.abs(gradient.fusion.norm.stats.mean).max() > 0


@pytest.mark.slow
def test_a_model_in_stages_has_the_cells_of_its_last_grid():
    model = presets.model("swin-mini", classes=3, width=12, heads=1)
    rows, columns = model.stage_configs[-1].input.grid
    params = random_params(tfm.pixel_specs(model, 3, 2))
    pixels = jax.random.normal(jax.random.key(0), (1, *model.input.pixels))
    hidden = tfm.features(params.encoder, params.mix, model, pixels)
    assert tfm.pixel_outputs(params, model, hidden, (2 * rows, 2 * columns, 3)).shape == (1, 2 * rows, 2 * columns, 3)
    assert tfm.pixel_outputs(params, model, hidden, (32, 32, 3)).shape == (1, 32, 32, 3)
