"""Convolutions over images: one of them, the norm of groups, and the network of transformers' BiT."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.catalogue.inputs import resnet

NETWORK = {
    "input": "resnet",
    "input.stem": "small",
    "input.kind": "basic",
    "input.groups": 2,
    "input.blocks": "4x1,6x2",
}
IMAGES = NETWORK | {"input.size": 8, "input.image_width": 4, "input.cls": False, "residual": "pre", "norm_eps": 1e-6}
SIZES = {"layers": 0, "heads": 2, "width": 8, "dropout": 0.0, "classes": 3, "head.pool": "mean"}
CONFIG = tfm.override(tfm.Config(), IMAGES | SIZES)


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize(
    ("side", "stride"),
    [(3, 2), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((1, 1), (1, 2), (3, 1), (7, 2)))],
)
def test_a_convolution_is_that_of_a_library_with_standardized_weights(side, stride):
    rng = np.random.default_rng(side)
    x, kernel = rng.normal(size=(2, 8, 6, 3)), rng.normal(2, 3, size=(side, side, 3, 4))
    standard = (kernel - kernel.mean((0, 1, 2))) / kernel.std((0, 1, 2))
    x, kernel, standard = (np.float32(values) for values in (x, kernel, standard))
    before = side // 2
    expected = jax.lax.conv_general_dilated(
        x, standard, (stride, stride), [(before, before)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    actual = resnet.convolution(jnp.asarray(kernel), jnp.asarray(x), stride)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_groups_of_channels_are_normalized(fill):
    layer = fill(resnet.specs(CONFIG.input, CONFIG)).blocks[0].branch[0].norm
    x = np.float32(np.random.default_rng(0).normal(3, 2, size=(2, 3, 5, 4)))
    groups = x.reshape(2, 15, 2, 2)
    groups = (groups - groups.mean((1, 3), keepdims=True)) / groups.std((1, 3), keepdims=True)
    expected = groups.reshape(x.shape) * np.asarray(layer.scale) + np.asarray(layer.bias)
    np.testing.assert_allclose(resnet.group_norm(layer, jnp.asarray(x), 2), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_without_layers_the_grid_is_classified(fill):
    """The mean of the normalized last grid, by one linear map; no layer and no position has a parameter."""
    config = tfm.override(CONFIG, {"position": "none", "head.dense": False})
    params = fill(tfm.classifier_specs(config))
    pixels = jnp.asarray(np.random.default_rng(1).normal(size=(2, 8, 4, 3)), jnp.float32)
    assert config.input.grid == (4, 2)
    assert not jax.tree.leaves(params.encoder.layers)
    grid = resnet.features(params.encoder.embed, config.input, pixels)
    assert grid.shape == (2, 4, 2, 6)
    assert float(grid.min()) == 0
    x = (
        grid.reshape(2, 8, 6) @ params.encoder.embed.projection.kernel
        + params.encoder.embed.projection.bias[None, None]
    )
    x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6)
    x = (x * params.encoder.norm.scale[None, None] + params.encoder.norm.bias[None, None]).mean(1)
    expected = x @ params.output.kernel + params.output.bias[None]
    np.testing.assert_allclose(tfm.classify(params, config, pixels), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input.blocks": "4x1,six"}, "blocks=4x1,six must be WIDTHxCOUNT, joined by commas"),
        ({"input.groups": 4}, "groups=4 must divide all widths of blocks=4x1,6x2"),
        ({"input.size": 7}, "size=7 must be a multiple of 2; try size=8"),
        ({"input.cls": True}, r"layers=0 leaves no layer in which \[CLS\] reads the picture; add input.cls=false"),
        ({"input": "patches", "input.size": 8, "input.patch": 2}, "layers=0 must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        tfm.override(CONFIG, changes)


def test_masked_patches_are_refused(fill):
    pixels = tfm.MaskedPixels(jnp.zeros((1, 8, 4, 3)), jnp.zeros((1, 8), bool))
    with pytest.raises(ValueError, match="input=resnet has no vector for masked patches; take input=patches"):
        tfm.embed(fill(tfm.embed_specs(CONFIG)), CONFIG, pixels)


@pytest.mark.parity
def test_the_network_is_that_of_transformers():
    """BiT with a large stem and bottlenecks, without its own map of edges: torch pads both sides alike."""
    import torch
    import transformers

    fields = dict(embedding_size=4, hidden_sizes=[16, 32], depths=[2, 1], num_groups=2, global_padding=None)
    torch.manual_seed(0)
    model = transformers.BitModel(transformers.BitConfig(**fields, layer_type="preactivation")).eval()
    with torch.no_grad():
        for values in model.parameters():
            values.copy_(torch.randn_like(values))
    changes = {"input": "resnet", "input.size": 32, "input.blocks": "16x2,32x1", "input.groups": 2}
    config = tfm.override(tfm.Config(layers=1, heads=2, width=8), changes)

    def kernel(layer):
        return jnp.asarray(layer.weight.detach().numpy().transpose(2, 3, 1, 0))

    def norm(layer):
        return tfm.Norm(*(jnp.asarray(values.detach().numpy()) for values in (layer.weight, layer.bias)))

    def block(layer):
        convolutions = ((layer.norm1, layer.conv1), (layer.norm2, layer.conv2), (layer.norm3, layer.conv3))
        branch = tuple(resnet.NormedConvolution(norm(first), kernel(second)) for first, second in convolutions)
        return resnet.ResNetBlock(branch, None if layer.downsample is None else kernel(layer.downsample.conv))

    params = resnet.ResNetEmbed(
        stem=kernel(model.embedder.convolution),
        blocks=tuple(block(layer) for stage in model.encoder.stages for layer in stage.layers),
        last_norm=norm(model.norm),
        projection=None,
        positions=None,
        cls=None,
        norm=None,
    )
    pixels = np.float32(np.random.default_rng(0).normal(size=(2, 32, 32, 3)))
    with torch.no_grad():
        expected = model(torch.from_numpy(pixels.transpose(0, 3, 1, 2))).last_hidden_state.numpy()
    actual = resnet.features(params, config.input, jnp.asarray(pixels))
    np.testing.assert_allclose(actual.transpose(0, 3, 1, 2), expected, rtol=1e-4, atol=1e-4)
