"""The nested dict of parameters of the old Flax classes, there and back."""

import json

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compat.models import COVERED, FLAX_ONLY, assert_close, opened, paths, saved
from hf_models import inputs

import tfm.compat
from tfm.compat.forward import layout


def test_what_there_is():
    assert {name for name in tfm.compat.__all__ if name.startswith("FlaxXLMRobertaFor")} == {
        f"FlaxXLMRobertaFor{head}"
        for head in (
            *("MaskedLM", "CausalLM", "SequenceClassification", "TokenClassification", "QuestionAnswering"),
            "MultipleChoice",
        )
    }
    assert set(dir(tfm.compat)) >= {"FlaxBertForMaskedLM", "FlaxAutoModelForSeq2SeqLM", "FlaxMarianMTModel"}
    from tfm.compat import FlaxAutoModelForPreTraining, FlaxBertModel

    assert FlaxBertModel.__name__ == "FlaxBertModel"
    assert FlaxAutoModelForPreTraining.choices["roberta"].__name__ == "FlaxRobertaForMaskedLM"
    assert tfm.compat.FlaxAutoModel.choices["gpt2"].__name__ == "FlaxGPT2Model"
    with pytest.raises(AttributeError, match=r"no 'FlaxVisionModel'; .*; did you mean FlaxCLIPVisionModel\?"):
        _ = tfm.compat.FlaxVisionModel
    assert not hasattr(tfm.compat, "FlaxVisionModel")
    with pytest.raises(ImportError, match=r"no 'FlaxOPTForCausalLM'; docs/guide/compat.md says what is not supported"):
        from tfm.compat import FlaxOPTForCausalLM  # noqa: F401


def test_params_are_laid_out_as_they_were(tmp_path):
    """Names and shapes as `FlaxBertForMaskedLM(config).params` of transformers 4 printed them."""
    params = opened(tmp_path / "bert", "bert", "BertForMaskedLM").params
    assert set(params) == {"bert", "cls"}
    assert set(params["bert"]["encoder"]["layer"]) == {"0", "1", "2"}
    assert params["bert"]["embeddings"]["word_embeddings"]["embedding"].shape == (103, 24)
    assert params["bert"]["encoder"]["layer"]["0"]["intermediate"]["dense"]["kernel"].shape == (24, 40)
    assert set(params["cls"]["predictions"]["transform"]["LayerNorm"]) == {"scale", "bias"}
    assert set(opened(tmp_path / "bare", "bert", "BertModel").params) == {"embeddings", "encoder", "pooler"}
    gpt = opened(tmp_path / "gpt2", "gpt2").params["transformer"]
    assert gpt["h"]["0"]["attn"]["c_attn"]["kernel"].shape == (72, 24)  # the old Conv1D kept [out, in]
    t5 = opened(tmp_path / "t5", "t5_gated").params
    assert t5["encoder"]["block"]["0"]["layer"]["0"]["layer_norm"]["weight"].shape == (24,)
    assert t5["lm_head"]["kernel"].shape == (24, 103)
    bart = opened(tmp_path / "bart", "bart").params
    assert bart["model"]["encoder"]["embed_positions"]["embedding"].shape == (33, 24)
    assert bart["final_logits_bias"].shape == (1, 103)


def test_an_encoder_needs_no_layers_of_a_decoder(tmp_path):
    model = opened(tmp_path, "t5", "T5EncoderModel", num_decoder_layers=0)
    assert set(model.params) == {"shared", "encoder"}
    assert model.config.num_decoder_layers == 0
    with pytest.raises(ValueError, match="num_decoder_layers=0; only T5EncoderModel has no decoder"):
        tfm.compat.FlaxT5Model.from_pretrained(tmp_path)
    assert type(tfm.compat.FlaxAutoModel.from_pretrained(tmp_path)) is type(model)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "architecture"), COVERED + FLAX_ONLY)
def test_params_there_and_back(name, architecture, tmp_path):
    model = opened(tmp_path, name, architecture)
    nested = layout(model._program)
    assert paths(model.params) == {".".join(keys) for keys in nested.shapes}
    params = type(model)(model.config).params
    assert_close(nested.nest(jax.jit(nested.take)(flax.core.freeze(params))), params)


@pytest.mark.slow
def test_params_are_checked(tmp_path):
    model = opened(tmp_path, "bert", "BertForSequenceClassification")
    with pytest.raises(ValueError, match=r"params lack (bert|classifier)\..*; give the whole tree"):
        model.params = {"classifier": {}}
    with pytest.raises(ValueError, match=r"params have more\.kernel, which this model has not"):
        model.params = {**model.params, "more": {"kernel": jnp.zeros(3)}}
    wrong = {**model.params, "classifier": {"kernel": jnp.zeros((24, 7)), "bias": jnp.zeros(2)}}
    with pytest.raises(ValueError, match=r"classifier\.kernel of shape \(24, 7\) instead of \(24, 2\)"):
        model(np.ones((1, 3), int), params=wrong)
    tokens = inputs()["tokens"]
    before = model(tokens).logits
    changed = jax.tree.map(lambda x: 0.5 * x, model.params)
    logits = model(tokens, params=flax.core.freeze(changed)).logits
    assert not np.allclose(before, logits)
    model.params = changed
    assert_close(model(tokens).logits, logits)
    copied = {**changed, "cls": {"predictions": {"decoder": {"bias": jnp.zeros(103)}}}}
    model.params = copied  # copies of parameters pass, as they did
    assert model.params["cls"]["predictions"]["decoder"]["bias"].shape == (103,)
    assert_close(model(tokens, params=copied).logits, logits)


@pytest.mark.slow
def test_a_new_model_and_one_without_params(tmp_path):
    fields = json.loads((saved(tmp_path, "roberta", "RobertaForMaskedLM") / "config.json").read_text())
    model = tfm.compat.FlaxAutoModelForMaskedLM.from_config(fields, seed=3)
    same_seed = tfm.compat.FlaxRobertaForMaskedLM(model.config, seed=3)
    assert_close(model.params, same_seed.params)
    empty, params = tfm.compat.FlaxRobertaForMaskedLM.from_pretrained(tmp_path, _do_init=False)
    assert_close(
        empty(inputs()["tokens"], params=params).logits,
        tfm.compat.FlaxRobertaForMaskedLM.from_pretrained(tmp_path)(inputs()["tokens"])[0],
    )
    bare = tfm.compat.FlaxRobertaForMaskedLM(fields, _do_init=False)
    with pytest.raises(ValueError, match="_do_init=False"):
        _ = bare.params
    with pytest.raises(ValueError, match="_do_init=False"):
        bare.params = params
    with pytest.raises(ValueError, match="_do_init=False"):
        _ = empty.params
    assert paths(bare.init_weights(bare.key, bare.input_shape)) == paths(params)
    assert {".".join(keys) for keys in bare.required_params} == paths(params) == paths(bare.params_shape_tree)


@pytest.mark.slow
def test_params_that_a_folder_lacks(tmp_path):
    """With _do_init=False they are left out, and `init_weights` adds them."""
    model = opened(tmp_path / "complete", "bert", "BertForMaskedLM")
    flat = flax.traverse_util.flatten_dict(model.params)
    lacking = ("bert", "encoder", "layer", "1", "attention", "self", "key", "kernel")
    rest = flax.traverse_util.unflatten_dict({keys: value for keys, value in flat.items() if keys != lacking})
    with pytest.raises(ValueError, match=r"params lack bert\.encoder\.layer\.1"):
        model.save_pretrained(tmp_path / "part", params=rest)
    empty, _ = type(model).from_pretrained(tmp_path / "complete", _do_init=False)
    empty.save_pretrained(tmp_path / "part", params=rest)
    with pytest.raises(ValueError, match="lacks"):
        type(model).from_pretrained(tmp_path / "part")
    with pytest.warns(UserWarning, match=r"has no such bert\.encoder\.layer\.1\.attention\.self\.key\.weight:"):
        empty, part = type(model).from_pretrained(tmp_path / "part", _do_init=False)
    assert lacking not in flax.traverse_util.flatten_dict(part)
    completed = flax.traverse_util.flatten_dict(empty.init_weights(empty.key, params=part))
    assert set(completed) == set(flat)
    for keys in flat.keys() - {lacking}:
        assert_close(completed[keys], flat[keys], atol=0)
