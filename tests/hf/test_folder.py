"""Hugging Face folders without torch: every family against stored results of transformers, and bad folders."""

import dataclasses
import json
import re
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from hf_models import CASES, MODELS, results, stored, thinned
from random_params import random_params

import tfm
from tfm import from_hf, to_hf
from tfm.config.inputs import Tokens
from tfm.config.positions import Rotary
from tfm.config.residuals import PreNorm
from tfm.hf import FAMILIES, tensors
from tfm.hf.fields import IGNORED
from tfm.hf.match import differences
from train.tasks.resolve import resolve

# Of each model one architecture is written again; of each family, the plain command reads one and writes one.
# That is the second one, or the first where the second is the bare model of a decoder.
FIRST = {
    name: ([name for name in architectures[:2] if re.search("For|LMHead", name)] or architectures)[-1]
    for name, (_, _, architectures) in MODELS.items()
}
SHIFTED = ("roberta", "xlm_roberta", "camembert", "mpnet", "longformer", "nystromformer")  # rows without a position
PLAIN = {kind: name for name, (kind, _, _) in reversed(MODELS.items())}.values()


# Families near to another one are read and written by slow tests.
NEAR_ANOTHER = ("xlm_roberta", "camembert", "mbart", "m2m_100", "mistral", "qwen2", "mt5", "umt5", "pegasus", "marian")
NEAR_ANOTHER += ("deit", "swinv2", "led", "longt5", "reformer", "beit", "swin", "vit_mae", "dinov2", "dinov3_vit")
NEAR_ANOTHER += ("switch_transformers", "vivit", "videomae", "audio_spectrogram_transformer", "pvt", "detr")


def some(cases):
    return [
        pytest.param(
            *case,
            marks=[pytest.mark.slow] * (FIRST[case[0]] != case[1] or case[0] not in PLAIN or case[0] in NEAR_ANOTHER),
        )
        for case in cases
    ]


@pytest.fixture
def bert(tmp_path):
    stored(tmp_path / "bert", "bert", "BertForSequenceClassification")
    return tmp_path / "bert"


@pytest.fixture
def edit(bert):
    """`edit(field=value)`: changes config.json; None takes a field away."""

    def edit(**fields):
        path = bert / "config.json"
        edited = json.loads(path.read_text()) | fields
        path.write_text(json.dumps({name: value for name, value in edited.items() if value is not None}))
        return bert

    return edit


@pytest.mark.parametrize(("name", "architecture"), some(CASES))
def test_results_are_those_of_transformers(name, architecture, tmp_path):
    expected = stored(tmp_path, name, architecture)
    config, params = from_hf(tmp_path)
    outputs = {output: np.asarray(values) for output, values in results(config, params).items()}
    if "logits" in outputs and outputs["logits"].shape[-1] == config.padded_vocab:
        outputs = {
            output: values[..., : config.vocab] if values.shape[-1] == config.padded_vocab else values
            for output, values in outputs.items()
        }
    compared = set(expected) & set(outputs)
    assert len(compared) > 1
    for output in compared:
        np.testing.assert_allclose(thinned(outputs[output]), expected[output], atol=1e-4, rtol=1e-4, err_msg=output)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in PLAIN or name in NEAR_ANOTHER)) for name in FIRST],
)
def test_what_is_written_is_what_was_read(name, tmp_path):
    """The same tensors, bit for bit, but for copies that no model needs; the same fields."""
    stored(tmp_path / "read", name, FIRST[name])
    config, params = from_hf(tmp_path / "read")
    to_hf(config, params, tmp_path / "written", like=tmp_path / "read")
    read, written = tensors.Tensors(tmp_path / "read"), tensors.Tensors(tmp_path / "written")
    prefix = FAMILIES[MODELS[name][0]].prefix  # a bare model may be written with it, and is saved without

    def name_in_read(tensor: str) -> str:
        tensor = tensor.replace("embed_out", "lm_head")
        return tensor if tensor in read else tensor.removeprefix(prefix)

    assert set(map(name_in_read, written)) <= set(read)
    for tensor in written:
        skips_rows = "embed_positions" in tensor or (name.startswith(SHIFTED) and "position_emb" in tensor)
        used = slice(2, None) if skips_rows else slice(None)
        values, expected = written[tensor], read[name_in_read(tensor)]
        np.testing.assert_allclose(values[used], expected[used], rtol=2e-7 if "t5" in name or "switch" in name else 0)
    assert from_hf(tmp_path / "written")[0] == config
    fields, again = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("read", "written"))
    shared = {field: (value, again.get(field, value)) for field, value in fields.items() if value is not None}
    for field, (value, written_value) in shared.items():
        if isinstance(value, dict):  # what it says, whatever is written beside that
            shared[field] = value, value | {name: written_value[name] for name in value if name in written_value}
    lost = {field for field, (value, written_value) in shared.items() if written_value != value}
    assert not lost - {"dtype"}


def test_a_mesh_gets_the_same_parameters(bert):
    expected, mesh = from_hf(bert)[1], tfm.make_mesh(2, 4, 1)
    sharded = from_hf(bert, mesh)[1]
    shardings = tfm.shardings(tfm.classifier_specs(from_hf(bert)[0]), mesh)
    assert jax.tree.map(lambda array: array.sharding, sharded) == shardings
    jax.tree.map(np.testing.assert_array_equal, sharded, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_other_dtypes_become_float32(bert, dtype):
    params, stored_tensors = from_hf(bert)[1], tensors.Tensors(bert)
    dtype = np.dtype(jax.numpy.dtype(dtype))
    entries = [
        (name, dtype, stored_tensors[name].shape, lambda name=name: np.array(stored_tensors[name]).astype(dtype))
        for name in stored_tensors
    ]
    tensors.write_folder(bert, entries, shard_bytes=4000)
    assert len(list(bert.glob("*.safetensors"))) > 3
    jax.tree.map(
        lambda array, expected: np.testing.assert_array_equal(array, np.asarray(expected, dtype).astype(np.float32)),
        from_hf(bert)[1],
        params,
    )


def test_names_of_older_folders(bert):
    """Without the prefix of the bare model, and with gamma and beta for the parts of norms."""
    params, stored_tensors = from_hf(bert)[1], tensors.Tensors(bert)

    def older(name):
        name = re.sub("LayerNorm.bias", "LayerNorm.beta", name.removeprefix("bert."))
        return re.sub("LayerNorm.weight", "LayerNorm.gamma", name)

    entries = [
        (older(name), array.dtype, array.shape, lambda array=array: array) for name, array in stored_tensors.items()
    ]
    tensors.write_folder(bert, entries)
    jax.tree.map(np.testing.assert_array_equal, from_hf(bert)[1], params)


GPT = tfm.Config(
    layers=1, heads=2, width=8, vocab=11, length=6, residual=PreNorm(), input=Tokens(norm=False, token_types=None)
)
LLAMA = tfm.Config(
    layers=1, heads=2, width=8, vocab=11, residual=PreNorm(), input=Tokens(norm=False, token_types=None),
    position=Rotary(), norm="rms", activation="swiglu", bias=False, tie_embeddings=False,
)  # fmt: skip


@pytest.mark.slow
def test_a_model_of_ours_finds_its_family(tmp_path):
    bert = tfm.Config(layers=1, heads=2, width=8, vocab=11, length=6, pad_vocab_to=8)
    cases = {
        "BertForMaskedLM": (bert, tfm.masked_lm_specs(bert)),
        "BertForSequenceClassification": (bert, tfm.classifier_specs(bert)),
        "BertForTokenClassification": (bert, tfm.tagger_specs(bert)),
        "GPT2LMHeadModel": (GPT, tfm.causal_lm_specs(GPT)),
        "LlamaForCausalLM": (LLAMA, tfm.causal_lm_specs(LLAMA)),
    }
    for architecture, (config, specs) in cases.items():
        params = random_params(specs)
        to_hf(config, params, tmp_path / architecture)
        assert json.loads((tmp_path / architecture / "config.json").read_text())["architectures"] == [architecture]
        config_again, params_again = from_hf(tmp_path / architecture)
        assert config_again.vocab == config.vocab
        unpadded = jax.tree.map(
            lambda spec, array: array[:11] if spec.padding else array, specs, params
        )  # the padding comes back as zeros
        jax.tree.map(
            lambda array, expected: np.testing.assert_array_equal(array[: len(expected)], expected),
            params_again,
            unpadded,
        )


@pytest.mark.slow
def test_layers_of_several_kinds_are_written_in_their_order(tmp_path):
    """However a model divides its layers into prefix, period and tail, a folder numbers them."""
    config = dataclasses.replace(GPT, layers=5, prefix=(tfm.Layer(),), period=(tfm.Layer(), tfm.Layer(), tfm.Layer()))
    params = random_params(tfm.causal_lm_specs(config))
    to_hf(config, params, tmp_path, like={"model_type": "gpt2"})
    plain, plain_params = from_hf(tmp_path)
    assert plain.layer_plan.times == 5
    tokens = np.array([[1, 2, 3]])
    np.testing.assert_array_equal(
        tfm.causal_lm(params, config, tokens)[..., :11], tfm.causal_lm(plain_params, plain, tokens)[..., :11]
    )


def test_a_model_that_no_folder_can_hold(tmp_path):
    config = tfm.Config(layers=1, heads=2, width=8, vocab=11, residual=PreNorm())
    params = random_params(tfm.masked_lm_specs(config))
    with pytest.raises(
        ValueError, match="no such folder can hold this model; what does not fit the nearest, bert: residual=pre"
    ):
        to_hf(config, params, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tokenizer_files_are_copied(bert, tmp_path):
    (bert / "tokenizer.json").write_text("{}")
    (bert / "vocab.txt").write_text("a\n")
    (bert / "pytorch_model.bin").write_text("no")
    to_hf(*from_hf(bert), tmp_path / "out", tokenizer=bert, like=bert)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "vocab.txt",
    ]


# ---------------------------------------------------------------- bad folders

BAD = {
    "is of model_type blip, which is not supported; supported are bert, roberta": {"model_type": "blip"},
    "has no model_type; add it": {"model_type": None},
    "config.json has architectures=[BertLMHeadModel]; of bert, supported are BertModel": {
        "architectures": ["BertLMHeadModel"]
    },
    "config.json has position_embedding_type='relative_key'; of bert, only 'absolute' is supported": {
        "position_embedding_type": "relative_key"
    },
    "config.json has hidden_act='mish'; of bert, supported are gelu, gelu_new": {"hidden_act": "mish"},
    "of shape (2, 24) instead of (7, 24)": {"type_vocab_size": 7},
    "config.json promises them (num_hidden_layers=5, where 3 fits)": {"num_hidden_layers": 5},
    "num_attention_heads=5 must divide hidden_size=24": {"num_attention_heads": 5},
    "config.json and the weights are not of the same model (vocab_size=99, where 103 fits)": {"vocab_size": 99},
}


@pytest.mark.parametrize("sentence", BAD)
def test_a_bad_config_json(edit, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        from_hf(edit(**BAD[sentence]))
    assert "\n" not in str(caught.value)


def test_other_bad_folders(bert, tmp_path):
    with pytest.raises(ValueError, match="does not exist; give the folder of a model"):
        from_hf(tmp_path / "nowhere")
    (bert / "config.json").rename(tmp_path / "config.json")
    with pytest.raises(ValueError, match="has no config.json"):
        from_hf(bert)
    (bert / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json is not JSON"):
        from_hf(bert)
    (bert / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="config.json is a list, not a JSON object"):
        from_hf(bert)
    (tmp_path / "config.json").rename(bert / "config.json")
    (bert / "model.safetensors").rename(bert / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pickle"):
        from_hf(bert)


def test_rotary_positions_of_another_kind(tmp_path):
    stored(tmp_path, "llama", "LlamaForCausalLM")
    fields = json.loads((tmp_path / "config.json").read_text())
    fields["rope_parameters"] = {"rope_type": "proportional", "factor": 4.0}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(
        ValueError,
        match="type proportional; supported are default, .*, llama3; correct rope_parameters$",
    ):
        from_hf(tmp_path)


def test_what_changes_nothing_is_said(edit, bert):
    with pytest.warns(UserWarning, match="config.json has sparkle, which change nothing here"):
        from_hf(edit(sparkle=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_hf(edit(sparkle=None))
    stored_tensors = tensors.Tensors(bert) | {"extra.weight": np.zeros(2, np.float32)}
    entries = [(name, array.dtype, array.shape, lambda array=array: array) for name, array in stored_tensors.items()]
    tensors.write_folder(bert, entries)
    with pytest.warns(UserWarning, match="also has extra.weight, which this model does not use"):
        from_hf(bert)


def test_the_stored_results_are_of_all_models():
    folder = Path(__file__).parents[1] / "hf_reference"
    cases = [
        (path.stem, architecture) for path in folder.glob("*.json") for architecture in json.loads(path.read_text())
    ]
    assert sorted(cases) == sorted(CASES)


def test_a_field_that_a_family_computes_is_not_lost(tmp_path):
    """Llama rotates whole heads: half of each would come back as all of it."""
    config = dataclasses.replace(LLAMA, position=Rotary(fraction=0.5))
    params = random_params(tfm.causal_lm_specs(config))
    with pytest.raises(ValueError, match="llama: position.fraction=0.5"):
        to_hf(config, params, tmp_path / "out", like={"model_type": "llama"})


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["vit-micro", pytest.param("swin-mini", marks=pytest.mark.slow)])
def test_presets_of_pictures_are_written_and_read(preset, tmp_path):
    """Sizes that a preset leaves open, such as heads of later stages, are those that config.json names."""
    run, _ = resolve(["--task=image", f"--preset={preset}"], None, None)
    config = dataclasses.replace(run.model, classes=5)
    params = random_params(tfm.classifier_specs(config))
    restored_config, restored = from_hf(to_hf(config, params, tmp_path / "folder"))
    assert differences(config, restored_config) == []
    jax.tree.map(np.testing.assert_array_equal, params, restored)


def test_fields_without_effect_have_a_reason():
    for family in FAMILIES.values():
        assert all({**IGNORED, **family.ignored}.values()), family.name
        assert family.nested or not family.fields.keys() & family.ignored.keys(), family.name


@pytest.mark.parametrize("fields", [{}, {"mask_ratio": 0.75}])
def test_patches_that_transformers_would_leave_out_are_said(fields):
    """An encoder of MAE reads every patch here, and a written folder says so."""
    family = FAMILIES["vit_mae"]
    head = family.heads["ViTMAEModel"]
    with pytest.warns(UserWarning, match=f"mask_ratio={fields.get('mask_ratio')}: .* that share of the patches out"):
        config = family.config(fields, head)
    written = family.config_json(config, "ViTMAEModel")
    assert written["mask_ratio"] == 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert family.config(written, head) == config
