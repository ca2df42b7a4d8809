"""What MaxDiffusion calls of these classes, in own words, on tiny random folders, against transformers."""

import importlib
import json
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, serialization

from tfm import compat

END, IMAGE = 49, 12
TEXT = dict(
    vocab_size=50, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
    max_position_embeddings=11, bos_token_id=48, eos_token_id=END, pad_token_id=1, projection_dim=20,
)  # fmt: skip
VISION = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=IMAGE, patch_size=4
)
T5 = dict(vocab_size=60, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_heads=3, feed_forward_proj="gated-gelu")


def tokens():
    rows = np.random.default_rng(0).integers(2, END, (2, 11))
    rows[0, 4:] = rows[1, 9:] = END
    return rows


def close(actual, expected, atol=2e-5):
    np.testing.assert_allclose(np.asarray(actual, np.float32), np.asarray(expected), rtol=1e-4, atol=atol)


def test_what_scripts_ask_of_classes():
    """Pipelines look for FlaxPreTrainedModel, write configurations as JSON, and trace how parameters start."""
    fields = {**TEXT, "model_type": "clip_text_model"}
    model = compat.FlaxCLIPTextModelWithProjection(fields, seed=3, dtype="bfloat16", _do_init=False)
    assert issubclass(type(model), compat.FlaxPreTrainedModel)
    assert not issubclass(SimpleNamespace, compat.FlaxPreTrainedModel)
    fields = json.loads(model.config.to_json_string())
    assert {name: fields[name] for name in TEXT} == TEXT
    assert (model.config.projection_dim, model.dtype) == (20, jnp.bfloat16)
    shapes = jax.eval_shape(partial(model.init_weights, input_shape=(4, 11)), jax.random.key(0))
    assert jax.tree.map(np.shape, shapes) == jax.tree.map(np.shape, model.params_shape_tree)
    with pytest.raises(ValueError, match="dtype=float32 and torch_dtype=torch.bfloat16 differ"):
        compat.FlaxUMT5EncoderModel.from_pretrained(".", dtype=jnp.float32, torch_dtype="torch.bfloat16")


class CheckerModule(linen.Module):
    """Vectors of pictures beside those of concepts."""

    config: object

    def setup(self):
        self.vision_model = compat.FlaxCLIPVisionModule(self.config.vision_config)
        self.visual_projection = linen.Dense(self.config.projection_dim, use_bias=False)
        self.concept_embeds = self.param("concept_embeds", jax.nn.initializers.ones, (3, self.config.projection_dim))

    def __call__(self, images):
        return self.visual_projection(self.vision_model(images)[1]) @ self.concept_embeds.T


class Checker(compat.FlaxPreTrainedModel):
    """A safety checker as scripts write it."""

    main_input_name = "clip_input"

    def __init__(self, config, input_shape=(1, IMAGE, IMAGE, 3), seed=0, dtype=jnp.float32, _do_init=True):
        super().__init__(config, CheckerModule(config), input_shape, seed, dtype, _do_init)

    def init_weights(self, rng, input_shape, params=None):
        return self.module.init(rng, jax.random.normal(rng, input_shape))["params"]

    def __call__(self, clip_input, params=None):
        return self.module.apply({"params": params or self.params}, jnp.transpose(clip_input, (0, 2, 3, 1)))


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A folder with a subfolder for each model of transformers, and the models."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    models = {
        "text_encoder": transformers.CLIPTextModel(transformers.CLIPTextConfig(**TEXT)),
        "text_encoder_2": transformers.CLIPTextModelWithProjection(transformers.CLIPTextConfig(**TEXT)),
        "t5": transformers.T5EncoderModel(transformers.T5Config(**T5)),
        "umt5": transformers.UMT5EncoderModel(transformers.UMT5Config(**T5)),
        "image_encoder": transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**VISION)),
    }
    folder = tmp_path_factory.mktemp("pipeline")
    for name, model in models.items():
        model.eval().save_pretrained(folder / name)
    return folder, models


def run(model, *inputs, **options):
    import torch

    with torch.no_grad():
        return model(*map(torch.as_tensor, inputs), **options)


@pytest.mark.parity
def test_flux_calls(reference):
    """CLIP's pooled vector of parameters that were cast and set again; states of T5, also in batches of one."""
    folder, models = reference
    clip = compat.FlaxCLIPTextModel.from_pretrained(folder, subfolder="text_encoder", from_pt=True, dtype="float32")
    t5 = compat.FlaxT5EncoderModel.from_pretrained(folder / "t5", dtype=jnp.float32)
    pooled = clip(tokens(), params=clip.params, train=False).pooler_output
    close(pooled, run(models["text_encoder"], tokens()).pooler_output)
    states = t5(tokens(), attention_mask=None, output_hidden_states=False)["last_hidden_state"]
    close(states, run(models["t5"], tokens()).last_hidden_state)
    single = [t5(row[None], attention_mask=None, output_hidden_states=False)["last_hidden_state"] for row in tokens()]
    close(jnp.concatenate(single), states)
    replicated = jax.NamedSharding(jax.make_mesh((1,), ("data",)), jax.P())
    for encoder in (clip, t5):
        encoder.params = jax.tree.map(lambda value: value.astype(jnp.bfloat16), encoder.params)
        encoder.params = jax.device_put(encoder.params, replicated)
    close(clip(tokens(), params=clip.params, train=False).pooler_output, pooled, atol=0.05)
    close(t5(tokens())["last_hidden_state"].astype(t5.dtype), states, atol=0.05)
    mask = (tokens() != END).astype(int)
    expected = run(models["t5"], tokens(), attention_mask=run(lambda mask: mask, mask)).last_hidden_state
    t5 = compat.FlaxT5EncoderModel.from_pretrained(folder / "t5")
    assert type(compat.FlaxAutoModel.from_pretrained(folder / "t5")) is type(t5), "the folder names an encoder alone"
    close(t5(jnp.array(tokens()), attention_mask=jnp.array(mask))[0][mask > 0], expected[mask > 0])


@pytest.mark.parity
def test_sdxl_calls(reference, monkeypatch):
    """A pipeline finds the classes by name, loads models apart from parameters, and reads the last states but one."""
    import transformers

    folder, models = reference
    for name in ("FlaxPreTrainedModel", "FlaxCLIPTextModel", "FlaxCLIPTextModelWithProjection"):
        monkeypatch.setattr(transformers, name, getattr(compat, name), raising=False)
    library = importlib.import_module("transformers")
    encoders, params = {}, {}
    for name, class_name in (("text_encoder", "CLIPTextModel"), ("text_encoder_2", "CLIPTextModelWithProjection")):
        cls = getattr(library, f"Flax{class_name}")
        assert issubclass(cls, library.FlaxPreTrainedModel)
        encoders[name], params[name] = cls.from_pretrained(folder / name, _do_init=False)
    first, second = (encoders[name](tokens(), params=params[name], output_hidden_states=True) for name in encoders)
    expected = [run(models[name], tokens(), output_hidden_states=True) for name in encoders]
    states = jnp.concatenate([first["hidden_states"][-2], second["hidden_states"][-2]], axis=-1)
    close(states, np.concatenate([output.hidden_states[-2] for output in expected], axis=-1))
    close(second["text_embeds"], expected[1].text_embeds)
    again = compat.FlaxCLIPTextModelWithProjection(
        transformers.CLIPTextConfig(**json.loads(encoders["text_encoder_2"].config.to_json_string())),
        seed=0, dtype=jnp.float32, _do_init=False,
    )  # fmt: skip
    close(again(tokens(), params=params["text_encoder_2"], train=False)[0], expected[1].text_embeds)
    text_encoder = compat.FlaxCLIPTextModel.from_pretrained(folder / "text_encoder", from_pt=True)
    params = text_encoder.params
    del text_encoder._params
    close(text_encoder(tokens(), params=params)[0], expected[0].last_hidden_state)
    state = jax.jit(partial(text_encoder.init_weights, input_shape=(2, 11)))(jax.random.key(0))
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), state, text_encoder.init_weights(jax.random.key(0))
    )


@pytest.mark.parity
def test_wan_calls(reference):
    """umT5 with tensors of torch, whose states go back to torch; pictures of the last layer but one."""
    import torch

    folder, models = reference
    encoder = compat.FlaxUMT5EncoderModel.from_pretrained(folder, subfolder="umt5", torch_dtype=torch.float32)
    ids, mask = torch.from_numpy(tokens()), torch.from_numpy((tokens() != END).astype(int))
    states = torch.from_dlpack(encoder(ids, mask).last_hidden_state)
    expected = run(models["umt5"], tokens(), attention_mask=mask).last_hidden_state
    for row, expected_row, length in zip(states, expected, mask.gt(0).sum(dim=1), strict=True):
        close(row[:length], expected_row[:length])
    low = compat.FlaxUMT5EncoderModel.from_pretrained(folder, subfolder="umt5", torch_dtype=torch.bfloat16)
    assert torch.from_dlpack(low(ids, mask).last_hidden_state).dtype == torch.bfloat16
    pixels = np.random.default_rng(1).normal(size=(2, 3, IMAGE, IMAGE)).astype(np.float32)
    tower = compat.FlaxCLIPVisionModel.from_pretrained(folder, subfolder="image_encoder", dtype=jnp.float32)
    output = tower(jnp.array(pixels), output_hidden_states=True)
    close(output.hidden_states[-2], run(models["image_encoder"], pixels, output_hidden_states=True).hidden_states[-2])


@pytest.mark.parity
def test_a_safety_checker(reference, tmp_path):
    """It reads what torch wrote and what Flax wrote, with parameters apart, and writes what torch reads."""
    from safetensors import numpy as safetensors
    from transformers import CLIPConfig

    Checker.config_class = CLIPConfig
    _, models = reference
    config, generator = CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=20), np.random.default_rng(2)
    projection = generator.normal(size=(20, 32)).astype(np.float32)
    concepts = generator.normal(size=(3, 20)).astype(np.float32)
    tower = models["image_encoder"].state_dict()
    tensors = {f"vision_model.vision_model.{name}": value.numpy() for name, value in tower.items()}
    tensors |= {"visual_projection.weight": projection, "concept_embeds": concepts}
    config.save_pretrained(tmp_path / "safety_checker")
    safetensors.save_file(tensors, tmp_path / "safety_checker/model.safetensors")
    checker, params = Checker.from_pretrained(tmp_path, subfolder="safety_checker", _do_init=False)
    pixels = generator.normal(size=(2, 3, IMAGE, IMAGE)).astype(np.float32)
    expected = run(models["image_encoder"], pixels).pooler_output.numpy() @ projection.T @ concepts.T
    close(checker(pixels, params), expected)
    with pytest.raises(ValueError, match="pass them as params="):
        checker(pixels)
    config.save_pretrained(tmp_path / "flax")
    (tmp_path / "flax/flax_model.msgpack").write_bytes(serialization.to_bytes(params))
    loaded = Checker.from_pretrained(tmp_path / "flax")
    close(loaded(pixels), expected)
    loaded.save_pretrained(tmp_path / "again")
    written = safetensors.load_file(tmp_path / "again/model.safetensors")
    jax.tree.map(np.testing.assert_array_equal, written, {name: tensors[name] for name in written})
    del tensors["concept_embeds"]
    safetensors.save_file(tensors | {"other": concepts}, tmp_path / "safety_checker/model.safetensors")
    with pytest.warns(UserWarning, match="has other, which") as warned:
        Checker.from_pretrained(tmp_path, subfolder="safety_checker", from_pt=True)
    assert any("has no concept_embeds" in str(warning.message) for warning in warned)
