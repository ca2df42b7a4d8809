"""What a folder of a cross-encoder says of its scores."""

import json

import pytest

from train.text import cross_encoders

SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    ("fields", "saved", "expected"),
    [
        ({"sbert_ce_default_activation_function": IDENTITY}, None, "identity"),
        ({"sentence_transformers": {"activation_fn": SIGMOID, "version": "4.0.1"}}, None, "sigmoid"),
        ({"sentence_transformers": {"version": "4.0.1"}}, None, "sigmoid"),
        ({}, {"model_type": "CrossEncoder", "activation_fn": IDENTITY}, "identity"),
        (cross_encoders.fields("identity"), None, "identity"),
        (cross_encoders.fields("sigmoid"), {"model_type": "CrossEncoder", "activation_fn": IDENTITY}, "identity"),
    ],
)
def test_activations(fields, saved, expected, tmp_path):
    if saved:
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(saved))
    assert cross_encoders.is_folder(tmp_path, fields)
    assert cross_encoders.activation(tmp_path, fields) == expected


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("modules.json", [{"path": ""}, {"path": "1_Dense"}], "must name one module"),
        (
            "config_sentence_transformers.json",
            {"model_type": "CrossEncoder", "default_prompt_name": "query"},
            "default_prompt_name=query stands before every query",
        ),
        (
            "config_sentence_transformers.json",
            {"model_type": "CrossEncoder", "activation_fn": "torch.nn.Tanh"},
            "the activation 'torch.nn.Tanh' of scores is not one of",
        ),
    ],
)
def test_what_is_not_understood(name, content, says, tmp_path):
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=says):
        cross_encoders.activation(tmp_path, {})


def test_an_encoder_is_none(tmp_path):
    (tmp_path / "config_sentence_transformers.json").write_text('{"model_type": "SentenceTransformer"}')
    assert not cross_encoders.is_folder(tmp_path, {"num_labels": 1})
