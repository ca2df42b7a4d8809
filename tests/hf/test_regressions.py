"""Small folders that transformers 5 reads in another way than 4 did, or that say one thing twice; values by hand.

What transformers 5.24 does with each was tried; where it takes one of two values in silence, the folder is refused.
"""

import json
import warnings

import numpy as np
import pytest

from tfm import from_hf
from tfm.config.patterns import Full
from tfm.hf import FAMILIES, tensors
from tfm.hf.parameters import leaves

GPT2 = {"model_type": "gpt2", "vocab_size": 11, "n_embd": 4, "n_layer": 1, "n_head": 2, "n_positions": 5}
LLAMA = {
    "model_type": "llama", "vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 6, "max_position_embeddings": 64,
}  # fmt: skip
BERT = {
    "model_type": "bert", "vocab_size": 11, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 6, "max_position_embeddings": 5, "architectures": ["BertForMaskedLM"],
}  # fmt: skip
CLASSES = BERT | {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b"}}
T5 = {"model_type": "t5", "vocab_size": 11, "d_model": 4, "d_kv": 2, "d_ff": 6, "num_layers": 1, "num_heads": 2}
BART = {
    "model_type": "bart", "vocab_size": 11, "d_model": 4, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 6, "decoder_ffn_dim": 6,
    "max_position_embeddings": 5,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "factor": 4.0}


def config_of(fields, **changes):
    """The configuration of a config.json; None takes a field away."""
    fields = {name: value for name, value in (fields | changes).items() if value is not None}
    family = FAMILIES[fields["model_type"]]
    return family.config(fields, family.heads[family.architecture(fields)])


def rotary(fields, **changes):
    """Base, fraction and scaling of the positions."""
    position = config_of(fields, **changes).position
    return position.base, position.fraction, position.scaling and position.scaling.name


def draw(name, shape):
    """The values of a tensor, which depend on its name."""
    return np.random.default_rng(len(name)).normal(size=shape).astype(np.float32)


def save(folder, fields, edit=lambda arrays: None):
    """A folder with random tensors, after `edit` of them by name."""
    family = FAMILIES[fields["model_type"]]
    head = family.heads[family.architecture(fields)]
    config = family.config(fields, head)
    arrays = {
        name: draw(name, leaf.shape)
        for leaf in leaves(head.specs(config), family.table(config, head))
        for name in leaf.names
    }
    edit(arrays)
    entries = [(name, array.dtype, array.shape, array.copy) for name, array in arrays.items()]
    tensors.write_folder(folder, entries)
    (folder / "config.json").write_text(json.dumps(fields))
    return folder, arrays


def read(folder):
    """What `from_hf` reads, and the sentences of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config, params = from_hf(folder)
    return config, params, [str(warning.message) for warning in caught]


# ---------------------------------------------------------------- rotary positions


def test_rotary_base_inside_and_beside():
    assert rotary(LLAMA, rope_parameters={"rope_type": "default", "rope_theta": 500.0}) == (500.0, 1.0, None)
    assert rotary(LLAMA, rope_theta=500.0) == (500.0, 1.0, None)
    both = {"rope_theta": 500, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
    assert rotary(LLAMA, **both) == (500.0, 1.0, None)
    with pytest.raises(ValueError, match=r"rope_theta=100.0 and rope_parameters.rope_theta=500.0, which must be equal"):
        rotary(LLAMA, **both | {"rope_theta": 100.0})


def test_null_is_no_value():
    fields = LLAMA | {"rope_theta": None, "rope_scaling": None}
    family = FAMILIES["llama"]
    inside = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "factor": None}}
    config = family.config(fields | inside, family.heads["LlamaForCausalLM"])
    assert config.position.base == 500.0
    bert = FAMILIES["bert"]
    assert bert.config(BERT | {"position_embedding_type": None}, bert.heads["BertForMaskedLM"]).width == 4


def test_scaling_in_both_objects():
    """transformers 5 reads `rope_scaling` in place of the other; version 4 knows no other."""
    assert rotary(LLAMA, rope_scaling=LINEAR, rope_theta=500.0) == (500.0, 1.0, "linear")
    assert rotary(LLAMA, rope_scaling={"type": "linear", "factor": 4.0}) == (10_000.0, 1.0, "linear")
    both = {"rope_scaling": LINEAR, "rope_parameters": LINEAR | {"rope_theta": 500.0}}
    assert rotary(LLAMA, **both, rope_theta=500.0) == (500.0, 1.0, "linear")
    with pytest.raises(ValueError, match="rope_parameters.rope_theta=500.0 and no rope_scaling.rope_theta"):
        rotary(LLAMA, **both)
    with pytest.raises(ValueError, match="rope_scaling.rope_type='linear' and rope_parameters.rope_type='default'"):
        rotary(LLAMA, rope_scaling=LINEAR, rope_parameters={"rope_type": "default"})
    with pytest.raises(ValueError, match="rope_scaling.factor=4.0 and rope_parameters.factor=2.0"):
        rotary(LLAMA, rope_scaling=LINEAR, rope_parameters=LINEAR | {"factor": 2.0})


def test_fraction_of_a_head():
    neox = {"model_type": "gpt_neox", "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    half = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}}
    assert rotary(neox) == (10_000.0, 0.25, None)
    assert rotary(neox, rotary_pct=0.5, rotary_emb_base=70) == (70.0, 0.5, None)
    assert rotary(neox, **half) == (500.0, 0.5, None)
    with pytest.raises(ValueError, match="rotary_pct=0.25 and rope_parameters.partial_rotary_factor=0.5"):
        rotary(neox, **half, rotary_pct=0.25)
    with pytest.raises(ValueError, match="partial_rotary_factor=0.5; of llama, only 1.0 is supported"):
        rotary(LLAMA, partial_rotary_factor=0.5)


def test_base_of_a_folder_that_names_none():
    plain = {name: value for name, value in LLAMA.items() if not name.startswith("rope")}
    assert rotary(plain)[0] == 10_000
    assert rotary(plain | {"model_type": "mixtral", "num_key_value_heads": 2})[0] == 1e6


def test_length_of_training_inside_and_beside():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    assert config_of(LLAMA, rope_parameters=yarn).position.scaling.original_length == 16
    with pytest.raises(ValueError, match="original_max_position_embeddings=32 and rope_parameters.original_max"):
        rotary(LLAMA, rope_parameters=yarn, original_max_position_embeddings=32)


# ---------------------------------------------------------------- kinds of layers


SMALL = LLAMA | {"num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 4}


def windows(**changes):
    """The window of every layer, None for one that sees everything."""
    patterns = [kind.mixer.pattern for kind in config_of(SMALL, **changes).layer_plan.layers]
    return [None if isinstance(pattern, Full) else pattern.window for pattern in patterns]


def test_windows_of_mistral():
    mixed = ["full_attention", "sliding_attention", "full_attention"]
    assert windows(model_type="mistral") == [4096] * 3
    assert windows(model_type="mistral", sliding_window=7) == [7] * 3
    assert windows(model_type="mistral", sliding_window=7, layer_types=mixed) == [None, 7, None]
    assert windows(model_type="mistral", sliding_window=7, layer_types=["full_attention"] * 3) == [None] * 3
    with pytest.raises(ValueError, match="2 layer_types and num_hidden_layers=3, which must be equal"):
        windows(model_type="mistral", sliding_window=7, layer_types=mixed[:2])
    family = FAMILIES["mistral"]
    fields = SMALL | {"sliding_window": None, "layer_types": mixed}
    with pytest.raises(ValueError, match="sliding_window=None; say the size"):
        family.config(fields, family.heads["MistralForCausalLM"])


def test_windows_of_qwen():
    mixed = ["full_attention", "sliding_attention", "sliding_attention"]
    assert windows(model_type="qwen3", sliding_window=7) == [None] * 3
    assert windows(model_type="qwen3", sliding_window=7, use_sliding_window=True) == [None] * 3
    assert windows(model_type="qwen3", sliding_window=7, use_sliding_window=True, max_window_layers=1) == [None, 7, 7]
    assert windows(model_type="qwen3", sliding_window=7, use_sliding_window=True, layer_types=mixed) == [None, 7, 7]
    with pytest.raises(ValueError, match="layer_types with sliding_attention and use_sliding_window=false"):
        windows(model_type="qwen3", sliding_window=7, layer_types=mixed)


# ---------------------------------------------------------------- one fact under two names


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (GPT2 | {"hidden_size": 8}, "n_embd=4 and hidden_size=8"),
        (GPT2 | {"num_hidden_layers": 2}, "n_layer=1 and num_hidden_layers=2"),
        (GPT2 | {"n_ctx": 4}, "n_ctx=4 and n_positions=5"),
        (T5 | {"head_dim": 4}, "d_kv=2 and head_dim=4"),
        (T5 | {"dense_act_fn": "gelu"}, "dense_act_fn='gelu' and feed_forward_proj=relu, so dense_act_fn='relu'"),
        (T5 | {"is_gated_act": True}, "is_gated_act=True and feed_forward_proj=relu, so is_gated_act=False"),
        (BART | {"num_hidden_layers": 2}, "encoder_layers=1 and num_hidden_layers=2"),
        (BART | {"model_type": "marian", "decoder_vocab_size": 12}, "decoder_vocab_size=12 and vocab_size=11"),
        ({"model_type": "bloom", "hidden_size": 8, "n_embed": 16}, "hidden_size=8 and n_embed=16"),
        (
            BERT | {"architectures": ["BertForSequenceClassification"], "num_labels": 3, "id2label": {"0": "a"}},
            "num_labels=3 and the number of classes in id2label=1",
        ),
        (CLASSES | {"label2id": {"a": 1, "b": 0}}, "id2label.0='a' and label2id.a=1, which must be equal"),
    ],
)
def test_one_fact_under_two_names(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        config_of(fields)


def test_the_second_name_alone():
    assert config_of(GPT2, n_embd=None, hidden_size=8).width == 8
    assert config_of(BERT, architectures=["BertForSequenceClassification"], num_labels=3).classes == 3
    assert config_of(CLASSES, label2id={"LABEL_0": 0, "LABEL_1": 1}).classes == 2  # of another head
    gated = config_of(T5, feed_forward_proj="gated-gelu", dense_act_fn="gelu_new", is_gated_act=True)
    assert gated.activation == "geglu_tanh"


# ---------------------------------------------------------------- tensors that are one parameter


def test_the_twin_alone(tmp_path):
    """Version 5 saves either; version 4 saved the first one."""
    for case, (fields, first, twin) in enumerate(
        [
            (GPT2, "transformer.wte.weight", "lm_head.weight"),
            (LLAMA | {"tie_word_embeddings": True}, "model.embed_tokens.weight", "lm_head.weight"),
            (T5, "shared.weight", "decoder.embed_tokens.weight"),
            (BART, "model.shared.weight", "model.encoder.embed_tokens.weight"),
        ]
    ):
        folder, arrays = save(tmp_path / str(case), fields, lambda arrays: arrays.update({twin: arrays.pop(first)}))  # noqa: B023
        _, params, messages = read(folder)
        tokens = (params.encoder if hasattr(params, "encoder") else params.decoder).embed.tokens
        np.testing.assert_array_equal(tokens[:11], arrays[twin])
        assert messages == []


def test_a_t5_whose_tables_are_those_of_the_stacks(tmp_path):
    """madlad400 has no `shared.weight`, and an output of its own."""

    def edit(arrays):
        arrays["decoder.embed_tokens.weight"] = arrays.pop("shared.weight")

    folder, arrays = save(tmp_path, T5 | {"tie_word_embeddings": False}, edit)
    config, params, _ = read(folder)
    np.testing.assert_array_equal(params.encoder.embed.tokens[:11], arrays["decoder.embed_tokens.weight"])
    np.testing.assert_array_equal(params.table[:11], arrays["lm_head.weight"])
    assert not config.tie_embeddings


def test_an_output_that_is_not_the_table(tmp_path):
    """Version 5 does not tie two tensors that differ, whatever config.json says; version 4 dropped one."""

    def add(scale):
        return lambda arrays: arrays.update({"lm_head.weight": scale * arrays["transformer.wte.weight"]})

    folder, arrays = save(tmp_path / "other", GPT2, add(2))
    config, params, messages = read(folder)
    np.testing.assert_array_equal(params.decoder.embed.tokens[:11], arrays["transformer.wte.weight"])
    np.testing.assert_array_equal(params.table[:11], arrays["lm_head.weight"])
    assert not config.tie_embeddings
    assert "transformer.wte.weight and lm_head.weight with different values" in messages[0]
    folder, _ = save(tmp_path / "equal", GPT2, add(1))
    config, params, messages = read(folder)
    assert (config.tie_embeddings, params.table, messages) == (True, None, [])


OF_LAYER = "bert.encoder.layer.0"


def test_copies_that_differ_and_cannot_be_read(tmp_path):
    def differ(name, copy):
        return lambda arrays: arrays.update({copy: 2 * arrays[name]})

    for case, (fields, name, copy) in enumerate(
        [
            (BERT, "cls.predictions.bias", "cls.predictions.decoder.bias"),
            (BERT, "bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.gamma"),
            (CLASSES, "bert.embeddings.LayerNorm.bias", "bert.embeddings.LayerNorm.beta"),
            (BERT, f"{OF_LAYER}.output.LayerNorm.weight", f"{OF_LAYER}.output.LayerNorm.gamma"),
            (BERT, "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
            (T5, "shared.weight", "encoder.embed_tokens.weight"),
            (BART, "model.shared.weight", "model.decoder.embed_tokens.weight"),
        ]
    ):
        folder, _ = save(tmp_path / str(case), fields, differ(name, copy))
        with pytest.raises(ValueError, match=f"{name} and {copy} with different values"):
            from_hf(folder)


def test_the_copy_of_a_bias_alone(tmp_path):
    def edit(arrays):
        arrays["cls.predictions.decoder.bias"] = arrays.pop("cls.predictions.bias")

    folder, arrays = save(tmp_path, BERT, edit)
    np.testing.assert_array_equal(read(folder)[1].head.bias[:11], arrays["cls.predictions.decoder.bias"])


# ---------------------------------------------------------------- what is not needed


@pytest.mark.parametrize("architectures", [["BertModel"], []])
def test_a_bare_model_without_a_pooler(tmp_path, architectures):
    """`add_pooling_layer=False`, and folders of masked LMs that name the bare model or none."""
    folder, arrays = save(tmp_path, BERT)
    (folder / "config.json").write_text(json.dumps(BERT | {"architectures": architectures}))
    _, params, _ = read(folder)
    assert params.pooler is None
    np.testing.assert_array_equal(params.encoder.embed.tokens[:11], arrays["bert.embeddings.word_embeddings.weight"])


# ---------------------------------------------------------------- what is not read is said


@pytest.mark.parametrize(
    ("architecture", "names", "is_said"),
    [
        ("BertForTokenClassification", ["cls.predictions.bias", "bert.pooler.dense.weight"], True),
        ("BertForMaskedLM", ["cls.predictions.transform.extra"], True),
        ("BertForMaskedLM", ["bert.embeddings.position_ids", "cls.predictions.decoder.bias"], False),
    ],
)
def test_weights_of_heads_that_the_architecture_has_not_are_said(tmp_path, architecture, names, is_said):
    def add(arrays):
        bias = arrays.get("cls.predictions.bias", np.zeros(3, np.float32))
        arrays.update((name, bias if name.endswith("decoder.bias") else draw(name, (3,))) for name in names)

    folder, _ = save(tmp_path, BERT | {"architectures": [architecture]}, add)
    said = [sentence for sentence in read(folder)[2] if all(name in sentence for name in names)]
    assert len(said) == is_said
    assert all(f"which {architecture} does not use" in sentence for sentence in said)


def test_what_transformers_saves_with_every_head_is_not_said(tmp_path):
    """The pooler of FNet, with a masked LM."""
    fields = BERT | {"model_type": "fnet", "architectures": ["FNetForMaskedLM"]}
    del fields["num_attention_heads"]
    pooler = {f"fnet.pooler.dense.{name}": draw(name, (4,)) for name in ("weight", "bias")}
    folder, _ = save(tmp_path, fields, lambda arrays: arrays.update(pooler))
    assert not any("also has" in sentence for sentence in read(folder)[2])


# ---------------------------------------------------------------- adapters


def test_an_adapter_beside_a_model(tmp_path):
    """transformers would read the base that the adapter names, and apply it."""
    save(tmp_path, BERT)
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}')
    with pytest.raises(
        ValueError, match=r"adapter_config.json lies beside a model.*=some/base.*name it with --adapter"
    ):
        from_hf(tmp_path)
