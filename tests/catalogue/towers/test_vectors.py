"""Towers of texts and images: their vectors, what trains them, and their options."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from oracles import towers as oracle
from random_params import random_params

import tfm
from train.tasks.captions.towers import MODELS

pytestmark = pytest.mark.usefixtures("strict")

SIZES = {"layers": 2, "width": 16, "heads": 2, "ffn": 24, "vocab": 60, "pad_vocab_to": 64, "length": 8}
SIZES |= {"images.width": 24, "images.heads": 4, "images.ffn": 40, "images.input.size": 8, "images.input.patch": 4}
NAMES = ["clip-tiny", pytest.param("siglip-tiny", marks=pytest.mark.slow)]
MESHES = {"fsdp_tensor": (2, 2, 2, 1), "tensor_context": (2, 1, 2, 2)}
NEAR = {"rtol": 1e-4, "atol": 1e-5}


def config_of(name="clip-tiny", **values):
    """The model of a preset in small sizes; a dot in a name is written as two underscores."""
    shape = {key.removeprefix("model."): value for key, value in MODELS[name].items()}
    projection = {"images.projection": 12} if name.startswith("clip") else {}
    values = {key.replace("__", "."): value for key, value in values.items()}
    return tfm.override(tfm.Config(), shape | SIZES | projection | values)


def texts(rows=4):
    """Tokens, and which of them are no padding."""
    tokens = np.random.default_rng(0).integers(1, 60, (rows, 8))
    return jnp.asarray(tokens, jnp.int32), jnp.arange(8)[None] < jnp.array([8, 5, 7, 2])[:rows, None]


def pictures(rows=4):
    return jax.device_put(np.float32(np.random.default_rng(1).normal(size=(rows, 8, 8, 3))))


def loss(params, config, tokens, valid, images, key=None):
    """The mean over a batch of the loss that the model has."""
    text_key, image_key = (None, None) if key is None else jax.random.split(key)
    sides = (
        tfm.image_vectors(params, config, images, image_key)[None],
        tfm.text_vectors(params, config, tokens, valid, text_key)[None],
    )
    present = jnp.ones_like(sides[0][..., 0], bool)
    if params.bias is None:
        return tfm.symmetric_losses(*sides, present, params.log_scale)[0].mean()
    return tfm.sigmoid_losses(*sides, present, params.log_scale, params.bias)[0].mean()


encoder, image_vectors, text_vectors = (
    jax.jit(function, static_argnums=1) for function in (tfm.encoder, tfm.image_vectors, tfm.text_vectors)
)
loss_and_gradient = jax.jit(jax.value_and_grad(loss), static_argnums=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_vectors_are_those_of_loops(name, fill):
    """Texts of several lengths, whose padding changes nothing; images with [CLS], and without."""
    config = config_of(name, images__reads_padding=False)
    params = fill(tfm.towers_specs(config))
    params = jax.tree.map(lambda leaf: 0.5 * leaf, params)
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    (tokens, valid), images = texts(), pictures()
    actual = jax.jit(tfm.text_vectors, static_argnums=1)(params, config, tokens, valid)
    rows = [row[kept].tolist() for row, kept in zip(np.asarray(tokens), np.asarray(valid), strict=True)]
    np.testing.assert_allclose(actual, [oracle.text_vector(wide, config, row) for row in rows], **NEAR)
    actual = jax.jit(tfm.image_vectors, static_argnums=1)(params, config, images)
    expected = [oracle.image_vector(wide, config.in_images(), np.asarray(image, np.float64)) for image in images]
    np.testing.assert_allclose(actual, expected, **NEAR)
    assert actual.dtype == jnp.float32


@pytest.mark.slow
def test_images_are_the_mean_of_their_patches(fill):
    config = config_of(images__pool="mean")
    params = fill(tfm.towers_specs(config))
    states = encoder(params.image, config.in_images(), pictures())
    expected = states[:, 1:].mean(1) @ params.image_projection.kernel
    expected /= jnp.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(image_vectors(params, config, pictures()), expected, **NEAR)


@pytest.mark.slow
def test_texts_with_padding_that_is_read():
    """As SigLIP was trained: padding is a token, and texts have the full length."""
    config = config_of("siglip-tiny")
    params = random_params(tfm.towers_specs(config))
    tokens, valid = texts()
    vectors = text_vectors(params, config, tokens, valid)
    np.testing.assert_array_equal(vectors, text_vectors(params, config, tokens))
    with pytest.raises(ValueError, match="tokens have 7 places, and .* fill them up to length=8"):
        text_vectors(params, config, tokens[:, :7], valid[:, :7])


@pytest.mark.slow
def test_where_scale_and_bias_start():
    for name, log_scale, bias in (("clip-tiny", np.log(1 / 0.07), None), ("siglip-tiny", np.log(10), -10)):
        specs = tfm.towers_specs(config_of(name, param_dtype="bfloat16"))
        specs = dataclasses.replace(specs, text=specs.text.norm, image=None)  # what is looked at
        params = tfm.init(specs, jax.random.key(0))
        assert (params.log_scale.dtype, params.text.scale.dtype) == (jnp.float32, jnp.bfloat16)
        np.testing.assert_allclose(params.log_scale, log_scale, rtol=1e-6)
        assert params.bias == bias
        assert not tfm.decay_mask(specs).log_scale


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clip-tiny", "siglip-tiny"])
def test_scan_remat_and_bfloat16(name):
    """Both towers unrolled, and with blocks computed again, are the same; bfloat16 is near."""
    config = config_of(name)
    params, batch = random_params(tfm.towers_specs(config)), (*texts(), pictures())
    value, gradient = loss_and_gradient(params, config, *batch)
    for values in ({"scan": False}, {"remat": "block"}):
        actual, slopes = loss_and_gradient(params, dataclasses.replace(config, **values), *batch)
        np.testing.assert_allclose(actual, value, rtol=1e-5)
        jax.tree.map(lambda leaf, slope: np.testing.assert_allclose(leaf, slope, **NEAR), slopes, gradient)
    np.testing.assert_allclose(loss(params, dataclasses.replace(config, dtype="bfloat16"), *batch), value, rtol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("mesh_name", ["fsdp_tensor", "tensor_context"])
@pytest.mark.parametrize("name", ["clip-tiny", "siglip-tiny"])
def test_eight_devices_are_one(name, mesh_name):
    """The loss over the batch of all devices and its gradient, with dropout."""
    config = config_of(name, dropout=0.1)
    specs = tfm.towers_specs(config)
    params, batch = random_params(specs), (*texts(), pictures())
    expected = loss_and_gradient(params, config, *batch, jax.random.key(3))
    mesh = tfm.make_mesh(*MESHES[mesh_name])
    with jax.set_mesh(mesh):
        sharded = jax.device_put(params, tfm.shardings(specs, mesh))
        axes = [tfm.partition(letters, (4, 8)[: len(letters)], mesh) for letters in ("BT", "BT", "B")]
        batch = [jax.device_put(array, NamedSharding(mesh, axis)) for array, axis in zip(batch, axes, strict=True)]
        actual = loss_and_gradient(sharded, config, *batch, jax.random.key(3))
    jax.tree.map(lambda leaf, same: np.testing.assert_allclose(leaf, same, rtol=2e-4, atol=2e-4), actual, expected)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("clip-vit-base-patch32", 151_277_313),
        ("clip-vit-large-patch14", 427_616_513),
        ("siglip-base-patch16", 203_155_970),
        ("siglip-so400m-patch14-384", 877_960_498),
    ],
)
def test_published_models_have_as_many_parameters(name, count):
    values = {key.removeprefix("model."): value for key, value in MODELS[name].items()}
    assert tfm.count_params(tfm.towers_specs(tfm.override(tfm.Config(), values))) == count


def test_the_options_of_a_tower():
    """They are flags as all others are, and what does not fit together is refused in a sentence."""
    config = config_of(images__activation="relu")
    assert tfm.override(tfm.Config(), tfm.flatten(config)) == config
    tower = config.in_images()
    assert (tower.width, tower.activation, tower.norm_eps, tower.input.grid) == (24, "relu", config.norm_eps, (2, 2))
    for sentence, values in {
        "images.width belongs to images=tower, not to none": {"images.width": 10},
        "images: heads=5 must divide width=128; try heads=4": {"images": "tower", "images.heads": 5},
        "images.pool=first reads .CLS., and input.cls=false has none": {"images": "tower", "images.input.cls": False},
        "images=tower stands beside a model of texts": {"images": "tower", "input": "patches"},
        "images=tower reads the last layer of texts": {"images": "tower", "head.layer": 1},
        "images.projection=0 must be at least 1": {"images": "tower", "images.projection": 0},
    }.items():
        with pytest.raises(ValueError, match=sentence):
            tfm.override(tfm.Config(), values)
    with pytest.raises(ValueError, match="images=none: the model reads texts alone; choose images=tower"):
        tfm.towers_specs(tfm.Config())
