"""The classes of CLIP, by what transformers and the functions of tfm compute."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
import tfm.compat

END = 49
TEXT = dict(
    vocab_size=50, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
    max_position_embeddings=11, eos_token_id=END,
)  # fmt: skip
VISION = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=12, patch_size=4
)
FIELDS = {"model_type": "clip", "text_config": TEXT, "vision_config": VISION, "projection_dim": 20}


def tokens():
    """Texts of several lengths, filled up with [EOS]."""
    rows = np.random.default_rng(0).integers(0, END, (3, 11))
    for row, end in zip(rows, (10, 5, 7), strict=True):
        row[end:] = END
    return rows


def pixels():
    return np.random.default_rng(1).normal(size=(2, 3, 12, 12)).astype(np.float32)


@pytest.mark.slow
def test_both_towers_and_one_alone(tmp_path):
    """Vectors are those of tfm; a tower alone, out of the folder of both, has the same states."""
    model = tfm.compat.FlaxCLIPModel(FIELDS, seed=3)
    assert model.config.text_config.hidden_size == 24
    kernel = model.params["vision_model"]["embeddings"]["patch_embedding"]["kernel"]
    assert (kernel.shape, model.params["logit_scale"].shape) == ((4, 4, 3, 32), ())
    model.save_pretrained(tmp_path)
    config, params = tfm.from_hf(tmp_path)
    valid = jnp.asarray(np.cumsum(tokens() == END, axis=1) <= 1)
    texts = tfm.text_vectors(params, config, jnp.asarray(tokens(), jnp.int32), valid)
    images = tfm.image_vectors(params, config, jnp.asarray(pixels().transpose(0, 2, 3, 1)))
    output = model(tokens(), pixels())
    np.testing.assert_allclose(output.text_embeds, texts, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        output.logits_per_image, np.exp(params.log_scale) * images @ texts.T, rtol=1e-4, atol=1e-4
    )
    features = model.get_text_features(tokens())
    np.testing.assert_allclose(tfm.unit_vectors(features), texts, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tfm.unit_vectors(model.get_image_features(pixels())), images, rtol=1e-4, atol=1e-5)
    for name, inputs in (("Text", tokens()), ("Vision", pixels())):
        tower = getattr(tfm.compat, f"FlaxCLIP{name}Model").from_pretrained(tmp_path)
        both_towers = output[f"{name.lower()}_model_output"]
        np.testing.assert_allclose(tower(inputs).pooler_output, both_towers.pooler_output, rtol=1e-4, atol=1e-5)
        assert list(tower.params) == [f"{name.lower()}_model"]
    assert isinstance(tfm.compat.FlaxAutoModel.from_pretrained(tmp_path), tfm.compat.FlaxCLIPModel)


@pytest.mark.slow
def test_the_end_of_a_text_in_older_folders():
    """Where config.json says 2, as transformers 4 wrote, it is the largest token."""
    model = tfm.compat.FlaxCLIPTextModel({**TEXT, "model_type": "clip_text_model", "eos_token_id": 2})
    ids = np.array([[5, 3, 49, 2, 7]])
    output = model(ids)
    np.testing.assert_array_equal(output.pooler_output, output.last_hidden_state[:, 2])


@pytest.mark.parity
def test_results_are_those_of_transformers(tmp_path):
    """Logits, vectors, and the states of every layer of both towers."""
    import torch
    import transformers

    torch.manual_seed(0)
    reference = transformers.CLIPModel(transformers.CLIPConfig(**FIELDS)).eval()
    reference.save_pretrained(tmp_path)
    ids, images = torch.from_numpy(tokens()), torch.from_numpy(pixels())
    with torch.no_grad():
        expected = reference(input_ids=ids, pixel_values=images, output_hidden_states=True)
    output = tfm.compat.FlaxCLIPModel.from_pretrained(tmp_path)(tokens(), pixels(), output_hidden_states=True)
    for name in ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds"):
        np.testing.assert_allclose(output[name], expected[name], rtol=1e-4, atol=1e-4)
    for name in ("text_model_output", "vision_model_output"):
        tower, states = output[name], expected[name]
        np.testing.assert_allclose(tower.last_hidden_state, states.last_hidden_state, rtol=1e-4, atol=1e-4)
        jax.tree.map(
            lambda actual, wanted: np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4),
            list(tower.hidden_states), list(states.hidden_states),
        )  # fmt: skip
