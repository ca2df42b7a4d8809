"""What the old Flax classes had beside calls: positions of padding, dtypes, attributes, masks of heads, more heads."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compat.models import assert_close, opened, saved
from flax.traverse_util import flatten_dict, unflatten_dict
from hf_models import inputs

import tfm.compat
from tfm.hf.tensors import read_file


@pytest.mark.slow
def test_positions_of_padding(tmp_path):
    """RoBERTa counts tokens from 2 on; padding has position 1, a row of the table like any."""
    model = opened(tmp_path, "roberta")
    tokens = inputs()["tokens"].copy()
    tokens[0, 3], tokens[1, 11:] = 1, 1
    positions = np.ones_like(tokens)
    for row, column in np.argwhere(tokens != 1):
        positions[row, column] = 2 + (tokens[row, :column] != 1).sum()
    states = model(tokens).last_hidden_state
    assert_close(states, model(tokens, position_ids=positions).last_hidden_state)
    table = model.params["embeddings"]["position_embeddings"]["embedding"]
    changed = {**model.params["embeddings"], "position_embeddings": {"embedding": table.at[1].add(1.0)}}
    model.params = {**model.params, "embeddings": changed}
    assert not np.allclose(model(tokens).last_hidden_state, states)
    model.save_pretrained(tmp_path / "again")
    again = type(model).from_pretrained(tmp_path / "again").params["embeddings"]["position_embeddings"]["embedding"]
    assert_close(again, table.at[1].add(1.0), atol=0)


def dtypes_of(params):
    return {keys: value.dtype for keys, value in flatten_dict(params).items()}


@pytest.mark.slow
def test_params_keep_their_dtypes(tmp_path):
    model, tokens = opened(tmp_path, "bert", "BertForSequenceClassification"), inputs()["tokens"]
    before = flatten_dict(model.params)
    kept = ("classifier", "kernel")
    mask = unflatten_dict({keys: keys != kept for keys in before})
    for method, dtype in ((model.to_bf16, jnp.bfloat16), (model.to_fp16, jnp.float16)):
        params = method(model.params, mask)
        assert dtypes_of(params) == {keys: np.dtype(np.float32) if keys == kept else dtype for keys in before}
        model.save_pretrained(tmp_path / "half", params=params)
        views = read_file(tmp_path / "half/model.safetensors")
        assert {name: view.dtype for name, view in views.items() if view.dtype != dtype} == {
            "classifier.weight": np.float32
        }
        again = type(model).from_pretrained(tmp_path / "half")
        assert_close(again.params, params, atol=0)
        assert dtypes_of(again.params) == dtypes_of(params)
        assert again(tokens).logits.dtype == jnp.float32
        assert_close(again(tokens).logits, model(tokens, params=model.to_fp32(params)).logits)
    assert set(dtypes_of(model.to_fp32(params)).values()) == {np.dtype(np.float32)}


@pytest.mark.slow
def test_computing_in_float16(tmp_path):
    saved(tmp_path, "gpt2")
    model, half = (
        tfm.compat.FlaxGPT2LMHeadModel.from_pretrained(tmp_path, dtype=dtype) for dtype in (jnp.float32, jnp.float16)
    )
    tokens = inputs()["tokens"]
    assert set(dtypes_of(half.params).values()) == {np.dtype(np.float32)}
    assert half(tokens, output_hidden_states=True).hidden_states[0].dtype == jnp.float16
    difference = np.abs(half(tokens).logits - model(tokens).logits).max()
    assert 0 < difference < 0.05 * np.std(model(tokens).logits)


@pytest.mark.slow
def test_masks_of_heads(tmp_path):
    """A head that is multiplied by 0 adds nothing: as if its rows of the output projection were zeros."""
    model, tokens = opened(tmp_path, "bert", "BertModel"), inputs()["tokens"]
    mask = np.ones((3, 3))
    mask[1, 2], mask[2, 0] = 0, 0.5
    masked = model(tokens, head_mask=mask, output_attentions=True)
    flat = flatten_dict(model.params)
    for layer, head in np.argwhere(mask != 1):
        keys = ("encoder", "layer", str(layer), "attention", "output", "dense", "kernel")
        flat[keys] = flat[keys].at[head * 8 : head * 8 + 8].multiply(mask[layer, head])
    expected = model(tokens, params=unflatten_dict(flat), output_attentions=True)
    assert_close(masked.last_hidden_state, expected.last_hidden_state)
    for weights, unmasked, heads in zip(masked.attentions, expected.attentions, mask, strict=True):
        assert_close(weights, np.asarray(unmasked) * heads[:, None, None])
    assert_close(model(tokens, head_mask=np.ones(3)).last_hidden_state, model(tokens).last_hidden_state)


@pytest.mark.slow
def test_gradient_checkpointing(tmp_path):
    model, tokens = opened(tmp_path, "bert", "BertForTokenClassification"), inputs()["tokens"]

    def loss(params):
        return jnp.square(model(tokens, params=params, train=True, dropout_rng=jax.random.PRNGKey(0)).logits).sum()

    def recomputes():
        return "remat" in str(jax.make_jaxpr(jax.grad(loss))(model.params))

    logits, gradients, recomputed = model(tokens).logits, jax.grad(loss)(model.params), recomputes()
    model.enable_gradient_checkpointing()
    assert not recomputed
    assert recomputes()
    assert (model(tokens).logits == logits).all()
    assert_close(jax.grad(loss)(model.params), gradients, atol=1e-3)


@pytest.mark.slow
def test_choices(tmp_path):
    """Rows [B,C,T] of choices are scored as rows are."""
    model, arrays = opened(tmp_path, "bert", "BertForMultipleChoice"), inputs()
    fields = {"input_ids": arrays["tokens"], "attention_mask": arrays["valid"], "token_type_ids": arrays["types"]}
    logits = model(**{name: values[None] for name, values in fields.items()}).logits
    assert logits.shape == (1, 2)
    for index in range(2):
        alone = model(**{name: values[None, index : index + 1] for name, values in fields.items()}).logits
        assert_close(logits[:, index], alone[:, 0])
    assert type(model) is tfm.compat.FlaxAutoModelForMultipleChoice.choices["bert"]
    with pytest.raises(ValueError, match=r"input_ids have shape \(2, 17\); they must be choices"):
        model(arrays["tokens"])


@pytest.mark.slow
def test_attributes(tmp_path):
    model = opened(tmp_path / "gpt2", "gpt2", bos_token_id=7)
    prefixes = {"FlaxGPT2Model": "transformer", "FlaxT5Model": "transformer", "FlaxBartModel": "model"}
    for name in prefixes:
        assert getattr(tfm.compat, name).base_model_prefix == prefixes[name]
    assert tfm.compat.FlaxViTModel.main_input_name == "pixel_values"
    assert model.main_input_name == "input_ids"
    model.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again/generation_config.json").read_text())["bos_token_id"] == 7
    base = tfm.compat.FlaxAutoModel.from_pretrained(tmp_path / "again")
    assert_close(base.params, model.params["transformer"], atol=0)
    base.save_pretrained(tmp_path / "base")
    assert not (tmp_path / "base/generation_config.json").exists()
    assert model.can_generate()
    with pytest.raises(ValueError, match="FlaxGPT2Model cannot generate; take a decoder"):
        base.generate(inputs()["tokens"])
    again = type(model).from_pretrained(tmp_path / "base")
    assert_close(again(inputs()["tokens"]).logits, model(inputs()["tokens"]).logits)


def test_mappings():
    """As scripts use them: MODEL_TYPES out of the keys, a class by a configuration."""
    mapping = tfm.compat.FLAX_MODEL_FOR_MASKED_LM_MAPPING
    assert [key.model_type for key in mapping][:5] == ["bert", "roberta", "distilbert", "electra", "albert"]

    class Configuration:
        model_type = "albert"

    assert mapping[Configuration] is mapping["albert"] is tfm.compat.FlaxAlbertForMaskedLM
    assert Configuration in mapping
    assert "t5" not in mapping
    assert set(tfm.compat.FLAX_MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING.values()) == {
        getattr(tfm.compat, f"Flax{name}")
        for name in (
            "T5ForConditionalGeneration",
            "MT5ForConditionalGeneration",
            "UMT5ForConditionalGeneration",
            "LongT5ForConditionalGeneration",
            "BartForConditionalGeneration",
            "MarianMTModel",
            "PegasusForConditionalGeneration",
        )
    }


def test_shift_tokens_right():
    """As the summarization script finds it: in the module of a model's class."""
    module = __import__(tfm.compat.FlaxBartModel.__module__, fromlist=["shift_tokens_right"])
    labels = np.array([[5, 6, 2, -100], [7, 2, -100, -100]])
    assert module.shift_tokens_right(labels, 1, 0).tolist() == [[0, 5, 6, 2], [0, 7, 2, 1]]


def test_an_encoder_that_is_asked_to_generate():
    with pytest.raises(ValueError, match="FlaxBertForCausalLM cannot generate; take a decoder"):
        object.__new__(tfm.compat.FlaxBertForCausalLM).generate([[1]])
