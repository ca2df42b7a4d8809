"""Folders of CLIP and SigLIP: what transformers computes, ours computes, in both directions."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm

pytestmark = pytest.mark.parity

END, LENGTH = 49, 11
TEXT = dict(
    vocab_size=50, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
    max_position_embeddings=LENGTH, bos_token_id=48, eos_token_id=END, pad_token_id=END,
)  # fmt: skip
VISION = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, image_size=12, patch_size=4,
    layer_norm_eps=1e-3,
)  # fmt: skip
CLASSES = {
    "CLIP": {"text_config": TEXT, "vision_config": VISION, "projection_dim": 20},
    "Siglip": {"text_config": TEXT | {"projection_size": 32}, "vision_config": VISION | {"hidden_act": "relu"}},
}


def filled(model):
    """A model whose parameters are random, none 0 or 1."""
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        for values in model.parameters():
            values.copy_(0.3 * torch.randn_like(values) + (values.ndim == 1))
    return model.eval()


@pytest.fixture(params=CLASSES)
def torch_model(request):
    import transformers

    config = getattr(transformers, f"{request.param}Config")(**CLASSES[request.param])
    return filled(getattr(transformers, f"{request.param}Model")(config))


def tokens():
    """Texts of several lengths behind [BOS], filled up with [EOS]."""
    rows = np.random.default_rng(0).integers(0, 48, (3, LENGTH))
    rows[:, 0] = 48
    for row, end in zip(rows, (10, 5, 7), strict=True):
        row[end:] = END
    return rows


def pixels():
    return np.random.default_rng(1).normal(size=(3, 12, 12, 3)).astype(np.float32)


def torch_outputs(model):
    import torch

    ids = torch.from_numpy(tokens())
    with torch.no_grad():
        return model(input_ids=ids, pixel_values=torch.from_numpy(pixels().transpose(0, 3, 1, 2)), return_loss=True)


def our_vectors(config, params):
    """Of texts up to their first [EOS], and of images."""
    ids = tokens()
    valid = np.cumsum(ids == END, axis=1) - (ids == END) == 0
    texts = jax.jit(tfm.text_vectors, static_argnums=1)(params, config, jnp.asarray(ids, jnp.int32), valid)
    return texts, jax.jit(tfm.image_vectors, static_argnums=1)(params, config, jnp.asarray(pixels()))


def assert_same(outputs, config, params):
    texts, images = our_vectors(config, params)
    np.testing.assert_allclose(texts, outputs.text_embeds, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(images, outputs.image_embeds, rtol=1e-4, atol=1e-5)


def test_a_folder_of_transformers_is_read(torch_model, tmp_path):
    """Vectors and losses, whose first side is that of texts in transformers' SigLIP."""
    torch_model.save_pretrained(tmp_path)
    config, params = tfm.from_hf(tmp_path)
    outputs = torch_outputs(torch_model)
    assert_same(outputs, config, params)
    texts, images = (vectors[None] for vectors in our_vectors(config, params))
    present = jnp.ones((1, 3), bool)
    if params.bias is None:
        losses, _ = tfm.symmetric_losses(images, texts, present, params.log_scale)
    else:
        losses, _ = tfm.sigmoid_losses(texts, images, present, params.log_scale, params.bias)
    np.testing.assert_allclose(losses.mean(), outputs.loss, rtol=1e-4)


def test_images_of_another_size(torch_model, tmp_path):
    """Positions are interpolated as transformers does."""
    import torch

    torch_model.save_pretrained(tmp_path)
    config, params = tfm.interpolate_positions(*tfm.from_hf(tmp_path), (16, 8))
    images = np.random.default_rng(1).normal(size=(2, 16, 8, 3)).astype(np.float32)
    with torch.no_grad():
        outputs = torch_model.get_image_features(
            torch.from_numpy(images.transpose(0, 3, 1, 2)), interpolate_pos_encoding=True
        )
    expected = tfm.unit_vectors(jnp.asarray(outputs.pooler_output))
    np.testing.assert_allclose(tfm.image_vectors(params, config, jnp.asarray(images)), expected, rtol=1e-4, atol=1e-4)


def test_a_folder_of_ours_is_read_by_transformers(torch_model, tmp_path):
    torch_model.save_pretrained(tmp_path / "hf")
    config, params = tfm.from_hf(tmp_path / "hf")
    params = jax.tree.map(lambda leaf: leaf * 1.1, params)
    for name, like in {"like": tmp_path / "hf", "ours": None}.items():
        tfm.to_hf(config, params, tmp_path / name, like=like)
        again, restored = tfm.from_hf(tmp_path / name)
        assert again == config
        assert jax.tree.all(jax.tree.map(lambda leaf, same: bool((leaf == same).all()), params, restored))
        model = type(torch_model).from_pretrained(tmp_path / name).eval()
        assert_same(torch_outputs(model), config, params)
    fields = json.loads((tmp_path / "like/config.json").read_text())
    assert fields["text_config"]["bos_token_id"] == 48, "what our configuration does not know is kept"


def test_a_folder_of_one_tower(tmp_path):
    """Those of CLIP alone, with the prefix of older folders and without it."""
    import torch
    import transformers

    ids, images = torch.from_numpy(tokens()), torch.from_numpy(pixels().transpose(0, 3, 1, 2))
    models = {
        "text": transformers.CLIPTextModel(transformers.CLIPTextConfig(**TEXT)),
        "vision": transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**VISION)),
    }
    for name, model in models.items():
        filled(model).save_pretrained(tmp_path / name)
        config, params = tfm.from_hf(tmp_path / name)
        tfm.to_hf(config, params, tmp_path / f"{name}-ours")
        again = type(model).from_pretrained(tmp_path / f"{name}-ours").eval()
        assert tfm.from_hf(tmp_path / f"{name}-ours")[0] == config
        for source in (model, again):
            with torch.no_grad():
                outputs = source(ids if name == "text" else images)
            if name == "text":
                actual = tfm.decoder(params.encoder, config, jnp.asarray(tokens(), jnp.int32))
                np.testing.assert_allclose(actual, outputs.last_hidden_state, rtol=1e-4, atol=1e-4)
            else:
                actual = tfm.encoder(params.encoder, config, jnp.asarray(pixels()))[:, 0]
                np.testing.assert_allclose(actual, outputs.pooler_output, rtol=1e-4, atol=1e-4)


def test_what_folders_cannot_say_is_refused(tmp_path):
    """The last sentence of a refusal names the options; a file that says what cannot be is refused, too."""
    from train.tasks.captions.towers import MODELS

    values = {key.removeprefix("model."): value for key, value in MODELS["siglip-tiny"].items()}
    config = tfm.override(tfm.Config(), values | {"images.reads_padding": False, "vocab": 50})
    params = random_params(tfm.towers_specs(config))
    with pytest.raises(ValueError, match="siglip: images.reads_padding=False"):
        tfm.to_hf(config, params, tmp_path)
    for fields, sentence in {
        '{"model_type": "clip", "text_config": 3}': "config.json: text_config=3 must be an object",
        '{"model_type": "clip", "vision_config": {"hidden_size": 0}}': "vision_config.hidden_size=0 must be at least 1",
        '{"model_type": "siglip", "text_config": {"projection_size": 5}}': "it must be vision_config.hidden_size=768",
    }.items():
        (tmp_path / "config.json").write_text(fields)
        with pytest.raises(ValueError, match=sentence):
            tfm.from_hf(tmp_path)
