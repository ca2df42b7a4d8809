"""A network of convolutions with batch norms behind them: against convolutions of jax, and transformers' ResNet."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.catalogue.inputs import resnet_v1

IMAGES = {
    "input": "resnet_v1",
    "input.size": 16,
    "input.image_width": 8,
    "input.stem": 4,
    "input.blocks": "4x1,8x2",
    "input.kind": "basic",
    "input.frozen": True,
}
CONFIG = tfm.override(tfm.Config(), IMAGES | {"layers": 1, "heads": 2, "width": 8, "dropout": 0.0, "position": "detr"})
PIXELS = np.float32(np.random.default_rng(1).normal(size=(2, 16, 8, 3)))


def random_network(config, seed=0):
    """Parameters of which no statistic is 0 or 1."""
    rng = np.random.default_rng(seed)

    def draw(path, spec):
        values = rng.normal(0, 0.4, spec.shape)
        is_positive = getattr(path[-1], "name", "") in ("scale", "variance")
        return jnp.asarray(0.5 + abs(values) if is_positive else values, jnp.float32)

    return jax.tree_util.tree_map_with_path(draw, resnet_v1.specs(config.input, config))


def convolved(layer, x, stride, statistics=None):
    """A convolution of jax, and the norm, by these statistics or by those of the places [B,R,C] of x."""
    side = len(layer.kernel)
    y = jax.lax.conv_general_dilated(
        x, layer.kernel, (stride, stride), [(side // 2, side // 2)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    y, norm = np.asarray(y), layer.norm
    mean, variance = (norm.stats.mean, norm.stats.variance) if statistics is None else statistics(y)
    return (y - np.asarray(mean)) / np.sqrt(np.asarray(variance) + 1e-5) * np.asarray(norm.scale) + np.asarray(
        norm.bias
    )


def expected_grid(params, x, statistics=None):
    """The last grid: a stem, a block that keeps the grid, one that halves it, and one behind."""
    x = np.maximum(convolved(params.stem, x, 2, statistics), 0)
    x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    for block, stride in zip(params.blocks, (1, 2, 1), strict=True):
        shortcut = x if block.shortcut is None else convolved(block.shortcut, x, stride, statistics)
        y = np.maximum(convolved(block.branch[0], x, stride, statistics), 0)
        x = np.maximum(shortcut + convolved(block.branch[1], y, 1, statistics), 0)
    return x


@pytest.mark.slow
@pytest.mark.usefixtures("strict")
def test_frozen_norms_have_the_statistics_that_are_there():
    params = random_network(CONFIG)
    assert [block.shortcut is None for block in params.blocks] == [True, False, True]
    grid = jax.jit(resnet_v1.features, static_argnums=1)(params, CONFIG.input, PIXELS)
    assert grid.shape == (2, 2, 1, 8)
    np.testing.assert_allclose(grid, expected_grid(params, PIXELS), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_norms_that_learn_have_the_statistics_of_a_batch_in_training():
    """Elsewhere those that are there; frozen norms have no gradient, and these have one."""
    options = dataclasses.replace(CONFIG.input, frozen=False)
    params = random_network(dataclasses.replace(CONFIG, input=options))
    grid = jax.jit(resnet_v1.features, static_argnums=1)(params, options, PIXELS)
    np.testing.assert_allclose(grid, expected_grid(params, PIXELS), rtol=1e-4, atol=1e-4)

    def loss(params, options):
        grid = resnet_v1.features(params, options, jnp.asarray(PIXELS))
        return (grid * jnp.arange(8.0)[None, None, None]).sum(), grid

    (_, grid), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)(params, options)
    of_batch = lambda y: (y.mean((0, 1, 2)), y.var((0, 1, 2)))
    np.testing.assert_allclose(grid, expected_grid(params, PIXELS, of_batch), rtol=1e-3, atol=1e-3)
    frozen = jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)(params, CONFIG.input)[0]
    for block, frozen_block in zip(gradient.blocks, frozen.blocks, strict=True):
        assert np.abs(block.branch[0].norm.scale).max() > 0
        assert np.abs(frozen_block.branch[0].kernel).max() > 0
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(frozen_block.branch[0].norm))


def test_frozen_norms_are_not_trained():
    specs = resnet_v1.specs(CONFIG.input, CONFIG)
    trained = tfm.trained_mask(specs)
    assert not any(jax.tree.leaves(trained.stem.norm))
    assert trained.stem.kernel
    learning = resnet_v1.specs(dataclasses.replace(CONFIG.input, frozen=False), CONFIG)
    assert tfm.trained_mask(learning).stem.norm.scale
    assert learning.stem.norm.stats.mean.running


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input.blocks": "4x1,six"}, "blocks=4x1,six must be WIDTHxCOUNT, joined by commas"),
        ({"input.kind": "bottleneck", "input.blocks": "6x1"}, "blocks=6x1 must have widths that are multiples of 4"),
        ({"input.size": 12}, "size=12 must be a multiple of 8; try size=16"),
        ({"input.stem": 0}, "stem=0 must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        tfm.override(CONFIG, changes)


def test_masked_patches_are_refused(fill):
    pixels = tfm.MaskedPixels(jnp.zeros((1, 16, 8, 3)), jnp.zeros((1, 2), bool))
    with pytest.raises(ValueError, match="input=resnet_v1 has no vector for masked patches"):
        tfm.embed(fill(tfm.embed_specs(CONFIG)), CONFIG, pixels)


@pytest.mark.parity
@pytest.mark.parametrize(("kind", "blocks"), [("bottleneck", "16x2,32x1"), ("basic", "8x1,12x2,16x1")])
def test_the_network_is_that_of_transformers(kind, blocks):
    """In evaluation, with statistics that are not 0 and 1."""
    import torch
    import transformers

    widths, depths = zip(*(map(int, part.split("x")) for part in blocks.split(",")), strict=True)
    fields = dict(embedding_size=8, hidden_sizes=[*widths], depths=[*depths], layer_type=kind)
    torch.manual_seed(0)
    model = transformers.ResNetModel(transformers.ResNetConfig(**fields)).eval()
    with torch.no_grad():
        for name, values in [*model.named_parameters(), *model.named_buffers()]:
            if values.dtype.is_floating_point:
                values.copy_(torch.rand_like(values) + 0.5 if "var" in name else 0.3 * torch.randn_like(values))
    changes = {"input.size": 32, "input.image_width": 64, "input.stem": 8, "input.blocks": blocks, "input.kind": kind}
    config = tfm.override(CONFIG, changes)

    def layer(module):
        convolution, norm = module.convolution, module.normalization
        arrays = [norm.weight, norm.bias, norm.running_mean, norm.running_var]
        scale, bias, mean, variance = (jnp.asarray(values.detach().numpy()) for values in arrays)
        kernel = jnp.asarray(convolution.weight.detach().numpy().transpose(2, 3, 1, 0))
        statistics = tfm.norms.batch.BatchStats(mean, variance)
        return resnet_v1.Convolution(kernel, tfm.norms.Norm(scale, bias, statistics))

    blocks = [block for stage in model.encoder.stages for block in stage.layers]
    params = resnet_v1.ResNetV1Embed(
        stem=layer(model.embedder.embedder),
        blocks=tuple(
            resnet_v1.ConvolutionBlock(
                tuple(map(layer, block.layer)),
                layer(block.shortcut) if hasattr(block.shortcut, "convolution") else None,
            )
            for block in blocks
        ),
        projection=None,
        positions=None,
    )
    specs = resnet_v1.specs(config.input, config)
    assert jax.tree.structure(params) == jax.tree.structure(dataclasses.replace(specs, projection=None))
    pixels = np.random.default_rng(0).normal(size=(2, 32, 64, 3)).astype(np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())).last_hidden_state.numpy()
    actual = resnet_v1.features(params, config.input, jnp.asarray(pixels))
    np.testing.assert_allclose(actual.transpose(0, 3, 1, 2), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
