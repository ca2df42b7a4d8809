"""Hugging Face folders without torch: every family against stored results of transformers, folders written, and bad folders."""

import json
import re
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from hf_models import CASES, MODELS, ours, stored, thinned

import tfm
from tfm import from_hf, to_hf
from tfm.hf import tensors

pytestmark = pytest.mark.usefixtures("quick")

# Of each model one architecture is written again; of each family, the plain command reads one.
FIRST = {name: architectures[min(1, len(architectures) - 1)] for name, (_, _, architectures) in MODELS.items()}
PLAIN = {kind: name for name, (kind, _, _) in reversed(MODELS.items())}.values()


def some(cases):
    return [
        pytest.param(*case, marks=[pytest.mark.slow] * (FIRST[case[0]] != case[1] or case[0] not in PLAIN))
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
        given = json.loads(path.read_text()) | fields
        path.write_text(json.dumps({name: value for name, value in given.items() if value is not None}))
        return bert

    return edit


@pytest.mark.parametrize(("name", "architecture"), some(CASES))
def test_results_are_those_of_transformers(name, architecture, tmp_path):
    expected = stored(tmp_path, name, architecture)
    config, params = from_hf(tmp_path)
    found = {each: np.asarray(values) for each, values in ours(config, params).items()}
    if "logits" in found and found["logits"].shape[-1] == config.padded_vocab:
        found = {
            each: values[..., : config.vocab] if values.shape[-1] == config.padded_vocab else values
            for each, values in found.items()
        }
    compared = set(expected) & set(found)
    assert len(compared) > 1
    for each in compared:
        np.testing.assert_allclose(thinned(found[each]), expected[each], atol=1e-4, rtol=1e-4, err_msg=each)


@pytest.mark.parametrize("name", FIRST)
def test_what_is_written_is_what_was_read(name, tmp_path):
    """The same tensors, bit for bit, but for copies that no model needs; the same fields."""
    stored(tmp_path / "theirs", name, FIRST[name])
    config, params = from_hf(tmp_path / "theirs")
    to_hf(config, params, tmp_path / "ours", like=tmp_path / "theirs")
    theirs, mine = tensors.Tensors(tmp_path / "theirs"), tensors.Tensors(tmp_path / "ours")
    assert {each.replace("embed_out", "lm_head") for each in mine} <= set(theirs)
    for each in mine:
        one, two = mine.view(each), theirs.view(each.replace("embed_out", "lm_head"))
        used = (
            slice(2, None)
            if "embed_positions" in each or (name == "roberta" and "position_emb" in each)
            else slice(None)
        )
        np.testing.assert_allclose(one[used], two[used], rtol=2e-7 if name.startswith("t5") else 0)
    assert from_hf(tmp_path / "ours")[0] == config
    given, written = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("theirs", "ours"))
    lost = {each for each in given if given[each] is not None and written.get(each, given[each]) != given[each]}
    assert not lost - {"dtype"}


def test_a_mesh_gets_the_same_parameters(bert):
    whole, mesh = from_hf(bert)[1], tfm.make_mesh(2, 4, 1)
    spread = from_hf(bert, mesh)[1]
    expected = tfm.shardings(tfm.classifier_specs(from_hf(bert)[0]), mesh)
    assert jax.tree.map(lambda array: array.sharding, spread) == expected
    jax.tree.map(np.testing.assert_array_equal, spread, whole)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_other_dtypes_become_float32(bert, dtype):
    whole, theirs = from_hf(bert)[1], tensors.Tensors(bert)
    kind = np.dtype(jax.numpy.dtype(dtype))
    entries = [
        (name, kind, theirs.shape(name), lambda name=name: np.array(theirs.view(name)).astype(kind)) for name in theirs
    ]
    tensors.write_folder(bert, entries, shard_bytes=4000)
    assert len(list(bert.glob("*.safetensors"))) > 3
    found = from_hf(bert)[1]
    jax.tree.map(
        lambda one, two: np.testing.assert_array_equal(one, np.asarray(two, kind).astype(np.float32)), found, whole
    )


def test_names_of_older_folders(bert):
    """Without the prefix of the bare model, and with gamma and beta for the parts of norms."""
    whole, theirs = from_hf(bert)[1], tensors.Tensors(bert)
    old = lambda name: re.sub(
        "LayerNorm.weight", "LayerNorm.gamma", re.sub("LayerNorm.bias", "LayerNorm.beta", name.removeprefix("bert."))
    )
    tensors.write_folder(
        bert,
        [(old(name), theirs.dtype(name), theirs.shape(name), lambda name=name: theirs.view(name)) for name in theirs],
    )
    jax.tree.map(np.testing.assert_array_equal, from_hf(bert)[1], whole)


def test_a_model_of_ours_finds_its_family(tmp_path):
    shape = tfm.Config(layers=1, heads=2, width=8, vocab=11, length=6, vocab_multiple=8)
    cases = {
        "BertForMaskedLM": tfm.masked_lm_specs(shape),
        "BertForSequenceClassification": tfm.classifier_specs(shape),
        "BertForTokenClassification": tfm.tagger_specs(shape),
    }
    gpt = tfm.Config(layers=1, heads=2, width=8, vocab=11, length=6, order="pre", embed_norm=False, token_types=0)
    llama = tfm.Config(
        layers=1, heads=2, width=8, vocab=11, order="pre", embed_norm=False, token_types=0, position="rotary", norm="rms",
        activation="swiglu", bias=False, tied=False,
    )  # fmt: skip
    cases |= {"GPT2LMHeadModel": tfm.causal_lm_specs(gpt), "LlamaForCausalLM": tfm.causal_lm_specs(llama)}
    for architecture, specs in cases.items():
        config = {"GPT2LMHeadModel": gpt, "LlamaForCausalLM": llama}.get(architecture, shape)
        params = tfm.init(specs, jax.random.key(0))
        to_hf(config, params, tmp_path / architecture)
        assert json.loads((tmp_path / architecture / "config.json").read_text())["architectures"] == [architecture]
        found, read = from_hf(tmp_path / architecture)
        assert found.vocab == config.vocab
        real = jax.tree.map(
            lambda spec, array: array[:11] if spec.padding else array, specs, params
        )  # the padding comes back as zeros
        jax.tree.map(lambda one, two: np.testing.assert_array_equal(one[: len(two)], two), read, real)


def test_a_model_that_no_folder_can_hold(tmp_path):
    config = tfm.Config(layers=1, heads=2, width=8, vocab=11, order="pre")
    params = tfm.init(tfm.masked_lm_specs(config), jax.random.key(0))
    with pytest.raises(
        ValueError, match="no such folder can hold this model; what does not fit the nearest, bert: order=pre"
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
    "is of model_type swin, which is not supported; supported are bert, roberta": {"model_type": "swin"},
    "has no model_type; add it": {"model_type": None},
    "config.json has architectures=[BertLMHeadModel]; of bert, supported are BertModel": {
        "architectures": ["BertLMHeadModel"]
    },
    "config.json has position_embedding_type='relative_key'; of bert, only 'absolute' is supported": {
        "position_embedding_type": "relative_key"
    },
    "config.json has hidden_act='mish'; of bert, supported are gelu, gelu_new": {"hidden_act": "mish"},
    "of shape (2, 24) instead of (7, 24)": {"type_vocab_size": 7},
    "lacks bert.encoder.layer.3": {"num_hidden_layers": 5},
    "heads=5 must divide width=24": {"num_attention_heads": 5},
    "config.json and the weights are not of the same model": {"vocab_size": 99},
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
    with pytest.raises(ValueError, match="holds no fields"):
        from_hf(bert)
    (tmp_path / "config.json").rename(bert / "config.json")
    (bert / "model.safetensors").rename(bert / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pickle"):
        from_hf(bert)


def test_rotary_positions_of_another_kind(tmp_path):
    stored(tmp_path, "llama", "LlamaForCausalLM")
    fields = json.loads((tmp_path / "config.json").read_text())
    fields["rope_parameters"] = {"rope_type": "yarn", "factor": 4.0}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(
        ValueError, match="rotary positions of type yarn; only default, linear and llama3 ones are supported"
    ):
        from_hf(tmp_path)


def test_what_changes_nothing_is_said(edit, bert):
    with pytest.warns(UserWarning, match="config.json has sparkle, which change nothing here"):
        from_hf(edit(sparkle=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_hf(edit(sparkle=None))
    theirs = tensors.Tensors(bert)
    more = [("extra.weight", np.dtype("float32"), (2,), lambda: np.zeros(2, np.float32))]
    entries = [(name, theirs.dtype(name), theirs.shape(name), lambda name=name: theirs.view(name)) for name in theirs]
    tensors.write_folder(bert, entries + more)
    with pytest.warns(UserWarning, match="also has extra.weight, which this model does not use"):
        from_hf(bert)


def test_the_stored_results_are_of_all_models():
    folder = Path(__file__).parents[1] / "hf_reference"
    found = [
        (path.stem, architecture) for path in folder.glob("*.json") for architecture in json.loads(path.read_text())
    ]
    assert sorted(found) == sorted(CASES)


def test_a_field_that_a_family_computes_is_not_lost(tmp_path):
    """Llama turns whole heads: half of each would come back as all of it."""
    config = tfm.Config(
        layers=1, heads=2, width=8, vocab=11, order="pre", embed_norm=False, token_types=0, position="rotary", norm="rms",
        activation="swiglu", bias=False, tied=False, rotary_share=0.5,
    )  # fmt: skip
    with pytest.raises(ValueError, match="llama: rotary_share=0.5"):
        to_hf(
            config,
            tfm.init(tfm.causal_lm_specs(config), jax.random.key(0)),
            tmp_path / "out",
            like={"model_type": "llama"},
        )
