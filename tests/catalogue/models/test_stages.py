"""Models in stages: their sizes, what merges patches, and convolutions that tell positions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import grid as oracle

import tfm
from tfm.catalogue.inputs import merging
from train.settings.recipes.stages import MODELS

pytestmark = pytest.mark.usefixtures("strict")

BASE = {"layers": 2, "width": 16, "heads": 2, "dropout": 0.0, "residual": "pre", "stages": 1}
BASE |= {"input": "patches", "input.size": 14, "input.patch": 2, "input.cls": False}


def config_of(**values):
    """A model with a grid of 7 x 7 patches."""
    return tfm.override(tfm.Config(), BASE | values)


def test_a_stage_is_twice_as_wide_on_half_of_the_grid():
    config = config_of(**{"stages": 3, "stages.2.layers": 6, "stages.2.heads": 4})
    sizes = [(stage.layers, stage.width, stage.heads, stage.grid) for stage in config.stage_configs]
    assert sizes == [(2, 16, 2, (7, 7)), (2, 32, 4, (4, 4)), (2, 64, 8, (2, 2)), (6, 128, 4, (1, 1))]
    assert config.stage_configs[-1].sizes["F"] == 512
    specs = tfm.encoder_specs(config)
    assert [stage.norm is None for stage in (specs, *specs.stages)] == [True, True, True, False]
    assert tfm.override(tfm.Config(), tfm.flatten(config)) == config


def test_a_stage_says_its_sizes_and_its_mixer():
    """Those of the next stage follow from them; a norm, positions and [CLS] are where a stage asks for them."""
    values = {"stages": 2, "position": "learned", "mixer": "spatial_reduction", "mixer.factor": 7}
    values |= {"stages.0.width": 24, "stages.0.heads": 3, "stages.0.ffn": 36, "stages.0.norm_before": True}
    values |= {"stages.0.kernel": 3, "stages.0.stride": 3, "stages.0.positions": True}
    values |= {"stages.1.mixer": "softmax", "stages.1.kernel": 3, "stages.1.cls": True}
    config = config_of(**values)
    sizes = [(stage.width, stage.heads, stage.sizes["F"], stage.input.grid) for stage in config.stage_configs]
    assert sizes == [(16, 2, 64, (7, 7)), (24, 3, 36, (3, 3)), (48, 6, 72, (2, 2))]
    mixers = [dataclasses.asdict(stage.mixer) for stage in config.stage_configs]
    assert mixers[0] == mixers[1] == {"name": "spatial_reduction", "factor": 7}
    assert mixers[2]["name"] == "softmax"
    specs = tfm.encoder_specs(config)
    assert [stage.norm is None for stage in (specs, *specs.stages)] == [False, True, False]
    assert specs.stages[0].embed.positions.shape == (9, 24)
    assert specs.stages[1].embed.positions is None
    assert specs.stages[1].embed.cls.shape == (48,)
    states = jax.eval_shape(lambda params: tfm.encoder(params, config, jnp.zeros((1, 14, 14, 3))), zeros(specs))
    assert states.shape == (1, 5, 48)


def zeros(specs):
    return jax.tree.map(lambda spec: jnp.zeros(spec.shape, jnp.float32), specs)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stages": 2, "stages.0.cls": True}, "stages.1: a stage merges patches of a grid, .* in the last stage alone"),
        ({"stages.0.stride": 3}, "stride=3 must be at least 1 and at most kernel=2; try stride=2"),
        ({"stages.0.kernel": 1, "stages.0.stride": 1}, "kernel=1 must be a side of squares from 2 to 64"),
        (
            {"mixer": "spatial_reduction", "mixer.factor": 1, "stages.0.mixer": "spatial_reduction"}
            | {"stages.0.cls": True},
            "mixer=spatial_reduction needs a grid of patches and nothing beside it",
        ),
    ],
)
def test_stages_that_cannot_be_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        config_of(**values)


def test_a_stage_without_a_grid_is_refused():
    with pytest.raises(ValueError, match="stages.0: a stage merges patches of a grid, and input=tokens has none"):
        tfm.override(tfm.Config(), {"stages": 1})
    with pytest.raises(ValueError, match="stages.0: heads=5 must divide width=32"):
        config_of(**{"stages.0.heads": 5})


@pytest.mark.parametrize("norm", ["merged", pytest.param("first", marks=pytest.mark.slow), "last"])
@pytest.mark.parametrize("kernel", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_squares_are_merged_column_by_column(kernel, norm, fill):
    """Against a loop over the squares, each of which begins at an even place, or one earlier where they overlap."""
    config = dataclasses.replace(config_of(), stages=(tfm.Stage(kernel=kernel, norm=norm, bias=True),)).stage_configs[1]
    params = fill(merging.specs(config.input, config))
    states = np.random.default_rng(0).normal(size=(2, 49, 16))
    kernel_map, bias = (
        np.asarray(params.projection.kernel, np.float64).reshape(-1, 32),
        np.asarray(params.projection.bias),
    )
    scale, shift = np.asarray(params.norm.scale, np.float64), np.asarray(params.norm.bias)

    def normalized(x):
        centered = x - x.mean(-1, keepdims=True)
        return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12) * scale + shift

    grid = np.zeros((2, 10, 10, 16))
    grid[:, 1:8, 1:8] = (normalized(states) if norm == "first" else states).reshape(2, 7, 7, 16)
    expected = np.zeros((2, 4, 4, 32))
    for row, column in np.ndindex(4, 4):
        top, left = 2 * row + (kernel == 2), 2 * column + (kernel == 2)
        square = [grid[:, top + i, left + j] for j in range(kernel) for i in range(kernel)]
        merged = np.concatenate(square, axis=-1)
        y = (normalized(merged) if norm == "merged" else merged) @ kernel_map + bias
        expected[:, row, column] = normalized(y) if norm == "last" else y
    actual = merging.embed(tfm.LayerCall(config.input, config, params), jnp.asarray(states, jnp.float32))
    np.testing.assert_allclose(actual, expected.reshape(2, 16, 32), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_conditional_positions_are_sums_over_neighbours(fill):
    """A block whose sublayers add nothing adds its two convolutions alone."""
    config = config_of(stages=0, layers=1, position="none", residual="conditional")
    model = jax.tree.map(jnp.asarray, fill(tfm.encoder_specs(config)))
    (block,) = [jax.tree.map(lambda leaf: leaf[0], tree) for tree in model.layers.period]
    silent = dataclasses.replace(
        block,
        mixer=dataclasses.replace(block.mixer, output=jax.tree.map(jnp.zeros_like, block.mixer.output)),
        feed_forward=dataclasses.replace(
            block.feed_forward, down=jax.tree.map(jnp.zeros_like, block.feed_forward.down)
        ),
    )
    layers = dataclasses.replace(model.layers, period=(jax.tree.map(lambda leaf: leaf[None], silent),))
    x = np.random.default_rng(0).normal(size=(2, 49, 16))
    context = tfm.AttentionContext(jnp.broadcast_to(jnp.arange(49)[None], (2, 49)))
    actual = tfm.stack(
        dataclasses.replace(model, layers=layers, norm=None), config, jnp.asarray(x, jnp.float32), context
    )[0]
    for convolution in (block.residual.convolutions[name] for name in ("mixer", "feed_forward")):
        kernel, bias = (np.asarray(leaf, np.float64) for leaf in (convolution.weights, convolution.bias))
        x = x + oracle.depthwise(kernel, bias, x, (7, 7))
    np.testing.assert_allclose(actual, x, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "count"), [("swin-tiny", 28_288_354), ("swin-v2-tiny", 28_347_154), ("davit-tiny", 28_360_168)]
)
def test_published_models_have_as_many_parameters(name, count):
    """Those of the authors' classifiers of 1,000 classes."""
    values = {key.removeprefix("model."): value for key, value in MODELS[name].items()}
    config = tfm.override(tfm.Config(), values | {"classes": 1000})
    assert tfm.count_params(tfm.classifier_specs(config)) == count
