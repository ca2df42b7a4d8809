"""Models of images at another size: positions are interpolated, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.catalogue.models.interpolation import cubic, resize_table

pytestmark = pytest.mark.usefixtures("strict")

classify, encoder = (jax.jit(function, static_argnums=1) for function in (tfm.classify, tfm.encoder))
CONFIG = tfm.override(
    tfm.Config(layers=1, heads=2, width=8, ffn=12, dropout=0.0, classes=3),
    {"input": "patches", "input.size": 4, "input.image_width": 6, "input.patch": 2, "input.channels": 1},
)


@pytest.mark.parametrize(("size", "new_size"), [(4, 4), (4, 9), (9, 4), (1, 3), (2, 7)])
def test_weights_of_cubic_convolution(size, new_size):
    """They sum to 1, are mirrored, and leave an equal size as it is."""
    matrix = cubic(size, new_size)
    np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(matrix[::-1, ::-1], matrix, atol=1e-12)
    if size == new_size:
        np.testing.assert_allclose(matrix, np.eye(size), atol=1e-12)


def test_a_point_between_two_pixels():
    """Half way, with the parameter -0.75: 0.59375 of the nearest two, -0.09375 of the next (Keys 1981, eq. 15)."""
    np.testing.assert_allclose(cubic(6, 3)[1], [0, -0.09375, 0.59375, 0.59375, -0.09375, 0])


@pytest.mark.slow
def test_a_model_of_larger_images(fill):
    params = fill(tfm.classifier_specs(CONFIG))
    config, resized = tfm.interpolate_positions(CONFIG, params, (8, 6))
    assert config.input.pixels == (8, 6, 1)
    old, new = params.encoder.embed.positions, resized.encoder.embed.positions
    assert new.shape == (13, 8)
    np.testing.assert_array_equal(new[0], old[0])
    grid = np.asarray(old, np.float64)[1:].reshape(2, 3, 8)
    expected = np.einsum("Rr,rcd->Rcd", cubic(2, 4), grid).reshape(12, 8)
    np.testing.assert_allclose(new[1:], expected, rtol=1e-5, atol=1e-6)
    pixels = jnp.ones((2, 8, 6, 1))
    assert classify(resized, config, pixels).shape == (2, 3)
    same = jax.tree.map(lambda old, new: old is new, params.output, resized.output)
    assert all(jax.tree.leaves(same))


BEIT = tfm.override(CONFIG, {"position": "beit", "position.shared": True, "input.size": 12, "input.image_width": 16})


@pytest.mark.parametrize(
    ("scan", "cls"),
    [
        (True, True),
        pytest.param(False, True, marks=pytest.mark.slow),
        pytest.param(True, False, marks=pytest.mark.slow),
        pytest.param(False, False, marks=pytest.mark.slow),
    ],
)
def test_biases_of_offsets_in_a_larger_picture(fill, cls, scan):
    """Of every layer and of all: from 11 x 15 offsets to 19 x 17. That of a patch and itself stays, and so do those of
    [CLS], which are the last three."""
    config = tfm.override(BEIT, {"input.cls": cls, "layers": 2, "scan": scan})
    new_config, resized = tfm.interpolate_positions(config, fill(tfm.encoder_specs(config)), (20, 18))
    assert new_config.input.grid == (10, 9)
    specs = jax.tree.leaves(tfm.encoder_specs(config))
    leaves = (jax.tree.leaves(params) for params in (fill(tfm.encoder_specs(config)), resized))
    tables = [(old, new) for spec, old, new in zip(specs, *leaves, strict=True) if spec.axes.endswith("OKG")]
    assert sum(old.size for old, _ in tables) == 3 * 2 * (11 * 15 + 3 * cls), "two layers, what they share; two heads"
    for old, new in (
        (np.asarray(table, np.float64).reshape(-1, table.shape[-3], 2) for table in pair) for pair in tables
    ):
        before, after = old[:, : 11 * 15].reshape(-1, 11, 15, 2), new[:, : 19 * 17].reshape(-1, 19, 17, 2)
        expected = np.einsum("Rr,lrcN,Cc->lRCN", cubic(11, 19), before, cubic(15, 17))
        np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(after[:, 9, 8], before[:, 5, 7], rtol=1e-5)
        np.testing.assert_array_equal(new[:, 19 * 17 :], old[:, 11 * 15 :])
    assert encoder(resized, new_config, jnp.ones((1, 20, 18, 1))).shape == (1, 90 + cls, 8)


SWIN = tfm.override(
    tfm.Config(layers=2, heads=2, width=8, ffn=12, dropout=0.0, classes=3),
    {"input": "patches", "input.size": 16, "input.patch": 2, "input.cls": False, "position": "swin", "residual": "pre"}
    | {"period": 2, "mixer.pattern": "windows", "mixer.pattern.window": 4, "stages": 1, "head.pool": "mean"},
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "last_side"),
    [
        ((16, 24), 4),
        pytest.param((32, 16), 4, marks=pytest.mark.slow),
        pytest.param((12, 16), 3, marks=pytest.mark.slow),
    ],
)
def test_tables_of_windows_stay_where_the_window_does(fill, size, last_side):
    """The second stage has a grid of 4 x 4, one window; a lower one cuts it."""
    params = fill(tfm.classifier_specs(SWIN))
    config, resized = tfm.interpolate_positions(SWIN, params, size)
    (first, last), (new_first, new_last) = (
        [[block.position for block in stage.layers.period] for stage in tree.encoder.all_stages.values()]
        for tree in (params, resized)
    )
    assert all(new is old for new, old in zip(new_first, first, strict=True))
    matrix = cubic(7, 2 * last_side - 1)
    for new, old in zip(new_last, last, strict=True):
        expected = np.einsum("Rr,lrcN,Cc->lRCN", matrix, np.asarray(old, np.float64).reshape(-1, 7, 7, 4), matrix)
        np.testing.assert_allclose(np.asarray(new).reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
    assert classify(resized, config, jnp.ones((1, *size, 3))).shape == (1, 3)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [{"fsdp": 2, "tensor": 2, "data": 2}])
def test_devices_share_the_work(fill, shape):
    """Tables that are spread over devices become what one device makes of them."""
    for config in (BEIT, tfm.override(CONFIG, {"input.size": 12, "input.image_width": 16})):
        specs = tfm.classifier_specs(config)
        params = fill(specs)
        alone = tfm.interpolate_positions(config, params, 24)[1]
        mesh = tfm.make_mesh(**shape)
        with jax.set_mesh(mesh):
            sharded = jax.device_put(params, tfm.shardings(specs, mesh))
            together = tfm.interpolate_positions(config, sharded, 24)[1]
        for leaf, expected in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(leaf, expected, rtol=1e-6, atol=1e-6)


def test_what_can_not_be_interpolated(fill):
    config = tfm.override(CONFIG, {"mixer": "gmlp"})
    with pytest.raises(ValueError, match="depends on how many patches there are, and only positions can be"):
        tfm.interpolate_positions(config, fill(tfm.classifier_specs(config)), 8)
    with pytest.raises(ValueError, match="size=5 must be a multiple of patch=2; try size=4"):
        tfm.interpolate_positions(CONFIG, fill(tfm.classifier_specs(CONFIG)), 5)
    with pytest.raises(ValueError, match="input=tokens has no rows and columns to interpolate between"):
        tfm.interpolate_positions(tfm.Config(), None, 5)


def test_positions_without_a_table_stay(fill):
    config = tfm.override(CONFIG, {"position": "sinusoidal", "position.axes": 2})
    params = fill(tfm.classifier_specs(config))
    resized = tfm.interpolate_positions(config, params, (8, 12))[1]
    assert jax.tree.map(jnp.shape, resized) == jax.tree.map(jnp.shape, params)


@pytest.mark.parity
@pytest.mark.parametrize(("grid", "new_grid"), [((4, 6), (7, 3)), ((14, 14), (16, 24)), ((5, 5), (2, 9))])
def test_torch_interpolates_tables_in_the_same_way(grid, new_grid):
    import torch

    table = np.random.default_rng(0).normal(size=(1 + grid[0] * grid[1], 5)).astype(np.float32)
    image = torch.from_numpy(table[1:].reshape(1, *grid, 5)).permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(image, size=new_grid, mode="bicubic", align_corners=False)
    expected = resized.permute(0, 2, 3, 1).reshape(-1, 5).numpy()
    actual = resize_table(jnp.asarray(table), 1, grid, new_grid)
    np.testing.assert_array_equal(actual[0], table[0])
    np.testing.assert_allclose(actual[1:], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parity
def test_transformers_interpolates_positions_of_vit_in_the_same_way(tmp_path):
    import torch
    from hf_models import torch_model

    model = torch_model("vit_grey", "ViTForImageClassification")  # theirs interpolates square grids
    model.save_pretrained(tmp_path)
    config, params = tfm.interpolate_positions(*tfm.from_hf(tmp_path), (8, 10))
    pixels = np.random.default_rng(0).normal(size=(2, 1, 8, 10)).astype(np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(pixels), interpolate_pos_encoding=True).logits.numpy()
    logits = classify(params, config, jnp.asarray(pixels.transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
