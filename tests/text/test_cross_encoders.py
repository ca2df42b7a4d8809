"""What a folder of a cross-encoder says of its scores."""

import json

import pytest

import tfm
from train.text import cross_encoders

# What version 6 writes beside the model.
MODULE = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
SCORES = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "scores",
}
SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    ("fields", "saved", "expected"),
    [
        ({"sbert_ce_default_activation_function": IDENTITY}, None, "identity"),
        ({"sentence_transformers": {"activation_fn": SIGMOID, "version": "4.0.1"}}, None, "sigmoid"),
        ({"sentence_transformers": {"version": "4.0.1"}}, None, "sigmoid"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.Identity"}}, None, "identity"),
        (
            {"sentence_transformers": {"activation_fn": None}, "sbert_ce_default_activation_function": IDENTITY},
            None,
            "sigmoid",
        ),
        ({}, {"model_type": "CrossEncoder", "activation_fn": IDENTITY}, "identity"),
        (cross_encoders.fields("identity"), None, "identity"),
        (cross_encoders.fields("sigmoid"), {"model_type": "CrossEncoder", "activation_fn": IDENTITY}, "identity"),
    ],
)
def test_activations(fields, saved, expected, tmp_path):
    if saved:
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(saved))
        (tmp_path / "modules.json").write_text(json.dumps([MODULE]))
    assert cross_encoders.is_folder(tmp_path, fields)
    assert cross_encoders.activation(tmp_path, fields) == expected


@pytest.mark.parametrize(
    ("modules", "saved", "says"),
    [
        ([MODULE, {**MODULE, "name": "1"}], {}, "must name one module"),
        ([MODULE | {"type": "my.Transformer"}], {}, "the module of type='my.Transformer' is not understood"),
        ([MODULE | {"path": "inner"}], {}, "path=inner of the Transformer has no config.json"),
        ([MODULE], {"default_prompt_name": "query"}, "default_prompt_name=query stands before every query"),
        (
            [MODULE],
            {"activation_fn": "torch.nn.Tanh"},
            "sentence_transformers.json: activation_fn='torch.nn.Tanh', the",
        ),
        ([MODULE], {"activation_fn": ["x"]}, r"sentence_transformers.json: activation_fn=\['x'\] must be"),
        ([MODULE], {"model_type": "SentenceTransformer"}, "model_type=SentenceTransformer is unknown"),
        ([MODULE], {"scale": 2}, "scale=2 is not understood"),
        (None, {}, "has config_sentence_transformers.json and no modules.json"),
    ],
)
def test_what_is_not_understood(modules, saved, says, tmp_path):
    if modules:
        (tmp_path / "modules.json").write_text(json.dumps(modules))
    path = tmp_path / "config_sentence_transformers.json"
    path.write_text(json.dumps({"model_type": "CrossEncoder"} | saved))
    with pytest.raises(ValueError, match=says):
        cross_encoders.activation(tmp_path, {})


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"sbert_ce_default_activation_function": "x"}, "config.json: sbert_ce_default_activation_function='x'"),
        ({"sentence_transformers": {"activation_fn": 5}}, r"config.json: sentence_transformers.activation_fn=5"),
    ],
)
def test_the_field_of_an_activation_is_named(fields, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        cross_encoders.activation(tmp_path, fields)


@pytest.mark.parametrize(
    ("saved", "tokenizer", "expected"),
    [
        ({}, {}, 32),
        ({}, {"model_max_length": 12}, 12),
        ({"max_seq_length": 16}, {"model_max_length": 12}, 16),
        ({"max_seq_length": 4}, {}, "sentence_bert_config.json: max_seq_length=4 is less than the 8 tokens"),
        ({}, {"model_max_length": 4}, "tokenizer_config.json: model_max_length=4 is less than the 8 tokens"),
        ({"do_lower_case": True}, {}, "do_lower_case=true is not done before pairs"),
        ({"transformer_task": "text-generation"}, {}, "transformer_task=text-generation is unknown"),
        ({"config_kwargs": {"hidden_act": "relu"}}, {}, "config_kwargs=.* is not understood"),
        ({"module_output_name": "token_embeddings"}, {}, "module_output_name=token_embeddings is unknown"),
    ],
)
def test_the_tokens_of_a_pair(saved, tokenizer, expected, tmp_path):
    (tmp_path / "modules.json").write_text(json.dumps([MODULE]))
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps(SCORES | saved))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    assert cross_encoders.is_folder(tmp_path, {}) == (saved.get("transformer_task") is None)
    if isinstance(expected, int):
        assert cross_encoders.length(tmp_path, tmp_path, tfm.Config(length=32)) == expected
        return
    with pytest.raises(ValueError, match=expected):
        cross_encoders.length(tmp_path, tmp_path, tfm.Config(length=32))


def test_an_encoder_is_none(tmp_path):
    (tmp_path / "config_sentence_transformers.json").write_text('{"model_type": "SentenceTransformer"}')
    assert not cross_encoders.is_folder(tmp_path, {"num_labels": 1})
