"""What image and video generators call of these classes: text encoders in subfolders, a projection, modules inside of a
module of Flax; against transformers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

from tfm import compat

END = 49
TEXT = dict(
    vocab_size=50, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
    max_position_embeddings=11, bos_token_id=48, eos_token_id=END, projection_dim=20,
)  # fmt: skip
VISION = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=12, patch_size=4
)
T5 = dict(vocab_size=60, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_heads=3, feed_forward_proj="gated-gelu")


def tokens():
    rows = np.random.default_rng(0).integers(0, END, (2, 11))
    rows[0, 4:] = rows[1, 9:] = END
    return rows


def pixels():
    return np.random.default_rng(1).normal(size=(2, 12, 12, 3)).astype(np.float32)


@pytest.mark.slow
def test_what_the_classes_share():
    """Either tower of texts is a FlaxCLIPTextPreTrainedModel; the projection comes out first."""
    model = compat.FlaxCLIPTextModelWithProjection({**TEXT, "model_type": "clip_text_model"})
    assert isinstance(model, compat.FlaxCLIPTextPreTrainedModel)
    assert issubclass(compat.FlaxCLIPTextModel, compat.FlaxCLIPTextPreTrainedModel)
    assert issubclass(compat.FlaxCLIPVisionModel, compat.FlaxCLIPVisionPreTrainedModel)
    assert jax.tree.map(np.shape, model.params["text_projection"]) == {"kernel": (24, 20)}
    assert set(model.params) == {"text_model", "text_projection"}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """A folder as pipelines have it, with a model in each subfolder, and the models."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    models = {
        "text_encoder": transformers.CLIPTextModel(transformers.CLIPTextConfig(**TEXT)),
        "text_encoder_2": transformers.CLIPTextModelWithProjection(transformers.CLIPTextConfig(**TEXT)),
        "text_encoder_3": transformers.T5EncoderModel(transformers.T5Config(**T5)),
        "image_encoder": transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**VISION)),
    }
    folder = tmp_path_factory.mktemp("pipeline")
    for name, model in models.items():
        model.eval().save_pretrained(folder / name)
    return folder, models


def outputs_of(model, inputs):
    """The results of a model of transformers."""
    import torch

    with torch.no_grad():
        return model(torch.from_numpy(inputs), output_hidden_states=True)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-4, atol=2e-5)


@pytest.mark.parity
@pytest.mark.slow
def test_encoders_of_texts_with_parameters_of_their_own(pipeline):
    """FLUX and SDXL: parameters apart from the model, in bfloat16 too, the last state but one, the pooled vector."""
    folder, models = pipeline
    model, params = compat.FlaxCLIPTextModel.from_pretrained(folder, subfolder="text_encoder", _do_init=False)
    expected = outputs_of(models["text_encoder"], tokens())
    output = model(tokens(), params=params, output_hidden_states=True)
    close(output["pooler_output"], expected.pooler_output)
    close(output.hidden_states[-2], expected.hidden_states[-2])
    projected = compat.FlaxCLIPTextModelWithProjection.from_pretrained(folder, subfolder="text_encoder_2")
    expected = outputs_of(models["text_encoder_2"], tokens())
    output = projected(tokens(), params=projected.params, output_hidden_states=True)
    close(output["text_embeds"], expected.text_embeds)
    close(output[0], expected.text_embeds)
    close(output["hidden_states"][-2], expected.hidden_states[-2])
    low = projected(tokens(), params=projected.to_bf16(projected.params))
    np.testing.assert_allclose(low.text_embeds, output.text_embeds, atol=0.05)
    encoder = compat.FlaxT5EncoderModel.from_pretrained(folder, subfolder="text_encoder_3", dtype=jnp.float32)
    close(encoder(tokens(), return_dict=False)[0], outputs_of(models["text_encoder_3"], tokens()).last_hidden_state)


@pytest.mark.parity
@pytest.mark.slow
def test_a_projection_is_written_as_it_was_read(pipeline, tmp_path):
    import transformers

    folder, models = pipeline
    compat.FlaxCLIPTextModelWithProjection.from_pretrained(folder / "text_encoder_2").save_pretrained(tmp_path)
    again = transformers.CLIPTextModelWithProjection.from_pretrained(tmp_path).eval()
    close(outputs_of(again, tokens()).text_embeds, outputs_of(models["text_encoder_2"], tokens()).text_embeds)


class Checker(linen.Module):
    """A model of pictures that is built of the module, as safety checkers are."""

    config: object

    def setup(self):
        self.vision_model = compat.FlaxCLIPVisionModule(self.config, dtype=jnp.float32)
        self.projection = linen.Dense(4, use_bias=False)

    def __call__(self, images):
        return self.projection(self.vision_model(images)[1])


@pytest.mark.parity
@pytest.mark.slow
def test_a_module_inside_of_a_module(pipeline):
    """Its parameters have the names of the class, under the name of the module."""
    folder, models = pipeline
    tower = compat.FlaxCLIPVisionModel.from_pretrained(folder, subfolder="image_encoder")
    checker = Checker(models["image_encoder"].config)
    params = jax.jit(checker.init)(jax.random.key(0), pixels())["params"]
    shapes = jax.tree.map(np.shape, params["vision_model"])
    assert shapes == jax.tree.map(np.shape, tower.params)
    kernel = params["projection"]["kernel"]
    pooled = outputs_of(models["image_encoder"], pixels().transpose(0, 3, 1, 2)).pooler_output
    output = jax.jit(checker.apply)({"params": {**params, "vision_model": tower.params}}, pixels())
    np.testing.assert_allclose(output, pooled.numpy() @ kernel, rtol=1e-4, atol=2e-5)


@pytest.mark.parity
@pytest.mark.slow
def test_a_module_of_texts(pipeline):
    folder, models = pipeline
    tower = compat.FlaxCLIPTextModel.from_pretrained(folder, subfolder="text_encoder")
    module = compat.FlaxCLIPTextModule(models["text_encoder"].config)
    output = module.apply({"params": tower.params}, tokens(), return_dict=False)
    close(output[1], outputs_of(models["text_encoder"], tokens()).pooler_output)
