"""Folders of BEiT: what transformers computes, ours computes, in both directions; and what is refused."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hf_models import BEIT, weights

import tfm
from tfm.hf import FAMILIES
from tfm.hf.match import conflicts_of
from tfm.hf.tensors import Tensors
from tfm.models.classifier import pooled_states

CLASSES = {
    "BeitModel": "last_hidden_state",
    "BeitForImageClassification": "logits",
    "BeitForMaskedImageModeling": "logits",
}
MEAN, FIRST = {"use_mean_pooling": True}, {"use_mean_pooling": False}
BY_LAYER, SHARED, ABSOLUTE = (
    {f"use_{name}": True}
    for name in ("relative_position_bias", "shared_relative_position_bias", "absolute_position_embeddings")
)
VARIANTS = {
    "published": SHARED | MEAN,
    "fine_tuned": BY_LAYER | MEAN | {"use_mask_token": False},
    "all_positions": SHARED | BY_LAYER | ABSOLUTE | FIRST,
    "no_positions": FIRST | {"image_size": [8, 8], "layer_scale_init_value": 0.0},
    "absolute": ABSOLUTE | MEAN | {"image_size": 4, "num_channels": 1},
}


def torch_model(architecture, fields):
    """A model of transformers with its usual weights of tests."""
    import torch
    import transformers

    plain = {name: value for name, value in BEIT.items() if name != "use_relative_position_bias"}
    config = transformers.BeitConfig(**plain | {"use_mask_token": True, "num_labels": 5} | fields)
    model = getattr(transformers, architecture)(config).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.copy_(torch.from_numpy(weights(name, tuple(values.shape))))
    return model


def images(config):
    """Pixels [B,H,W,C], and masked patches where the model has a vector for them."""
    rng = np.random.default_rng(0)
    pixels = rng.normal(size=(3, *config.input.pixels)).astype(np.float32)
    masked = rng.random((3, config.input.length - 1)) < 0.4
    return pixels, masked if config.input.mask_token else None


def computed(config, params, pixels, masked):
    """What our model makes of images."""
    pixels = jnp.asarray(pixels)
    if isinstance(params, tfm.Classifier) and params.output is not None:
        return jax.jit(tfm.classify, static_argnums=1)(params, config, pixels)
    if isinstance(params, tfm.Tagger) and masked is not None:
        return jax.jit(tfm.masked_image, static_argnums=1)(params, config, pixels, masked)
    pixels = pixels if masked is None else tfm.MaskedPixels(pixels, jnp.asarray(masked))
    hidden = jax.jit(tfm.encoder, static_argnums=1)(params.encoder, config, pixels)
    return tfm.patch_logits(params, config, hidden) if isinstance(params, tfm.Tagger) else hidden


def tensors_of(folder):
    """Tensors by name, without the prefix that a folder of a bare model lacks."""
    return {name.removeprefix("beit."): values for name, values in Tensors(folder).items()}


def torch_output(model, pixels, masked, **arguments):
    """The same of transformers."""
    import torch

    if masked is not None and not hasattr(model, "classifier"):
        arguments["bool_masked_pos"] = torch.from_numpy(masked)
    with torch.no_grad():
        return model(torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()), **arguments)


@pytest.mark.parity
@pytest.mark.parametrize("architecture", CLASSES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_there_and_back(variant, architecture, tmp_path):
    model = torch_model(architecture, VARIANTS[variant])
    model.save_pretrained(tmp_path / "read")
    config, params = tfm.from_hf(tmp_path / "read")
    pixels, masked = images(config)
    expected = torch_output(model, pixels, masked)[CLASSES[architecture]].numpy()
    actual = computed(config, params, pixels, masked)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    if architecture == "BeitModel":
        pooled = torch_output(model, pixels, masked).pooler_output.numpy()
        np.testing.assert_allclose(pooled_states(params, config, actual), pooled, rtol=1e-4, atol=1e-4)
    tfm.to_hf(config, params, tmp_path / "written")
    read, written = (tensors_of(tmp_path / name) for name in ("read", "written"))
    assert read.keys() == written.keys()
    assert all(np.array_equal(read[name], written[name]) for name in read)
    if architecture == "BeitForMaskedImageModeling" and not model.config.use_mean_pooling:
        return  # transformers 5.23 mixes up the two last norms, also of what it has written
    model_again = type(model).from_pretrained(tmp_path / "written").eval()
    again = torch_output(model_again, pixels, masked)[CLASSES[architecture]].numpy()
    np.testing.assert_allclose(again, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parity
def test_the_loss_of_masked_patches(tmp_path):
    import torch

    model = torch_model("BeitForMaskedImageModeling", VARIANTS["published"])
    model.save_pretrained(tmp_path)
    config, params = tfm.from_hf(tmp_path)
    pixels, masked = images(config)
    tokens = np.random.default_rng(1).integers(0, 37, int(masked.sum()))
    expected = torch_output(model, pixels, masked, labels=torch.from_numpy(tokens)).loss.item()
    loss = tfm.cross_entropy(computed(config, params, pixels, masked)[masked], jnp.asarray(tokens)).mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


def test_what_a_folder_cannot_say_is_refused():
    beit = FAMILIES["beit"]
    head = beit.heads["BeitForImageClassification"]
    with pytest.raises(ValueError, match=r"image_size=\[6, 4\]; of beit, only squares are supported"):
        beit.config(BEIT | {"image_size": [6, 4]}, head)
    with pytest.raises(ValueError, match=r"architectures=\[BeitForSemanticSegmentation\]; of beit, supported are"):
        beit.architecture({"architectures": ["BeitForSemanticSegmentation"]})
    config = beit.config(BEIT, head)
    fields = json.loads(json.dumps(beit.config_json(config, "BeitForImageClassification")))
    assert beit.config(fields, head) == config
    for values, conflict in (
        ({"head.pool": "first"}, "head.pool=first"),
        ({"residual.final_norm": True}, "head.pool_norm=True"),
        ({"mixer.key_bias": True}, "mixer.key_bias=True"),
        ({"position": "learned"}, "position=learned"),
    ):
        conflicts = conflicts_of(beit, tfm.override(config, values), "BeitForImageClassification")
        assert any(message == conflict for message in conflicts), conflicts
