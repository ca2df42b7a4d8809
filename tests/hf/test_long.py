"""What config.json of Longformer, LED, BigBird and GPT-Neo means in tfm, and what is refused; without torch."""

import dataclasses
import re

import numpy as np
import pytest
from hf_models import stored
from random_params import random_params

import tfm
from tfm import from_hf, to_hf
from tfm.catalogue.options.patterns import BigBird, Global, Sliding
from tfm.config.inputs import Tokens
from tfm.config.mixers import Softmax
from tfm.config.model import Layer
from tfm.config.patterns import Full
from tfm.config.residuals import PreNorm
from tfm.hf import FAMILIES
from tfm.hf.folder import open_folder, read_config
from tfm.hf.match import conflicts_of

LONGFORMER, BIG_BIRD, GPT_NEO, LED = (FAMILIES[name] for name in ("longformer", "big_bird", "gpt_neo", "led"))
SIZES = {
    "longformer": dict(vocab_size=103, hidden_size=24, num_hidden_layers=3, num_attention_heads=3),
    "big_bird": dict(vocab_size=103, hidden_size=24, num_hidden_layers=3, num_attention_heads=3),
    "gpt_neo": dict(vocab_size=103, hidden_size=24, num_layers=5, num_heads=3, attention_types=[[["global"], 5]]),
    "led": dict(
        vocab_size=103,
        d_model=24,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
    ),
}


def config(family, architecture="", **fields):
    """Our configuration of a small model."""
    name = next((name for name in family.heads if name.endswith(architecture)), "")
    return family.config(SIZES[family.name] | {"architectures": [name]} | fields, family.heads[name])


def patterns(model):
    """The pattern of every layer."""
    return [kind.mixer.pattern for kind in model.layer_plan.layers]


def window(size, tokens=0):
    return Global(window=size, tokens=tokens, projections=True)


@pytest.mark.parametrize(
    ("architecture", "fields", "expected"),
    [
        ("Model", {}, [window(512)] * 3),
        ("MaskedLM", {"attention_window": 8}, [window(8)] * 3),
        ("TokenClassification", {"attention_window": [8] * 3, "global_tokens": 4}, [window(8, 4)] * 3),
        ("SequenceClassification", {"attention_window": [8, 4, 8]}, [window(8, 1), window(4, 1), window(8, 1)]),
        ("SequenceClassification", {"attention_window": 8, "global_tokens": 0}, [window(8)] * 3),
        ("QuestionAnswering", {"attention_window": 8}, [window(8, 1)] * 3),
        ("MultipleChoice", {"attention_window": [2, 4, 4]}, [window(2, 1), window(4, 1), window(4, 1)]),
    ],
)
def test_longformer_and_back(architecture, fields, expected):
    model = config(LONGFORMER, architecture, **fields)
    assert patterns(model) == expected
    assert model.length == 510
    name = next(name for name in LONGFORMER.heads if name.endswith(architecture))
    assert conflicts_of(LONGFORMER, model, name) == []
    written = LONGFORMER.config_json(model, name)
    assert config(LONGFORMER, architecture, **written) == model
    assert written["attention_window"] == [pattern.window for pattern in expected]


def test_folders_have_no_places_of_global_tokens():
    model = config(LONGFORMER, "Model", attention_window=8)
    elsewhere = dataclasses.replace(model, mixer=Softmax(pattern=dataclasses.replace(window(8), places="0,7")))
    assert conflicts_of(LONGFORMER, model, "LongformerModel") == []
    assert conflicts_of(LONGFORMER, elsewhere, "LongformerModel") == ["mixer.pattern.places=0,7"]


def test_led_and_back():
    model = config(LED, attention_window=[8, 4, 8], max_encoder_position_embeddings=64, global_tokens=2)
    assert patterns(model) == [Full()] * 2
    assert patterns(model.in_encoder()) == [window(8, 2), window(4, 2), window(8, 2)]
    assert (model.length, model.encoder.length, model.encoder.layers) == (1024, 64, 3)
    assert config(LED, **LED.config_json(model, "LEDForConditionalGeneration")) == model
    plain = config(LED, encoder_layers=2)
    assert plain.encoder.period == (Layer(mixer=Softmax(pattern=window(512))),)
    assert conflicts_of(LED, plain, "LEDForConditionalGeneration") == []
    local = dataclasses.replace(
        plain, encoder=dataclasses.replace(plain.encoder, period=(Layer(mixer=Softmax(pattern=Sliding(window=8))),))
    )
    assert conflicts_of(LED, local, "LEDForConditionalGeneration") == ["encoder.0.mixer.pattern=sliding"]
    assert conflicts_of(
        LED, dataclasses.replace(plain, mixer=Softmax(pattern=window(8))), "LEDForConditionalGeneration"
    )
    assert conflicts_of(FAMILIES["bart"], plain, "BartModel")[0] == "encoder.length=16384"


def test_big_bird_and_back():
    model = config(BIG_BIRD, "MaskedLM", block_size=8, num_random_blocks=2, use_bias=False)
    expected = BigBird(8, random=2, global_blocks=1, last_blocks=1, draw="first", dense_blocks=9)
    assert model.mixer == Softmax(pattern=expected, qkv_bias=False)
    assert (model.length, model.activation) == (4096, "gelu_tanh")
    assert config(BIG_BIRD, "MaskedLM", **BIG_BIRD.config_json(model, "BigBirdForMaskedLM")) == model
    drawn = dataclasses.replace(model, mixer=Softmax(dataclasses.replace(expected, draw="seeded"), qkv_bias=False))
    assert conflicts_of(BIG_BIRD, drawn, "BigBirdForMaskedLM") == ["mixer.pattern.draw=seeded"]
    assert config(BIG_BIRD, "MaskedLM", attention_type="original_full").mixer == Softmax()
    activations = {"Model": "tanh", "SequenceClassification": "relu", "MultipleChoice": "tanh", "MaskedLM": "relu"}
    for architecture, activation in activations.items():
        assert config(BIG_BIRD, architecture, hidden_act="relu").head.pool_activation == activation


@pytest.mark.parametrize(
    ("attention_types", "names", "written", "size"),
    [
        ([[["global"], 5]], "ggggg", [[["global"], 5]], 1),
        ([[["local"], 5]], "lllll", [[["local"], 5]], 1),
        ([[["global", "local"], 2], [["global"], 1]], "glglg", [[["global", "local"], 2], [["global"], 1]], 2),
        ([[["global"], 1], [["local"], 4]], "gllll", [[["global", "local", "local", "local", "local"], 1]], 5),
    ],
)
def test_gpt_neo_and_back(attention_types, names, written, size):
    model = config(GPT_NEO, attention_types=attention_types, window_size=8)
    assert patterns(model) == [{"g": Full(), "l": Sliding(window=8)}[name] for name in names]
    assert all((kind.mixer.score, kind.mixer.qkv_bias) == ("dot", False) for kind in model.layer_plan.layers)
    assert len(model.period) == size
    fields = GPT_NEO.config_json(model, "GPTNeoForCausalLM")
    assert (fields["attention_types"], len(fields["attention_layers"])) == (written, 5)
    assert config(GPT_NEO, **fields) == model


@pytest.mark.slow
def test_windows_of_ours_are_written_as_even_ones(tmp_path):
    """An odd window has as many tokens on either side as the even one below it."""
    model = tfm.Config(
        layers=2, heads=2, width=8, vocab=11, length=9, mixer=Softmax(pattern=window(5, 1)), head=tfm.Head(pool="first")
    )
    params = random_params(tfm.classifier_specs(model))
    to_hf(model, params, tmp_path)
    read, read_params = from_hf(tmp_path)
    assert patterns(read) == [window(4, 1)] * 2
    tokens = np.array([[1, 2, 3, 4, 5, 6, 7, 8, 9]])
    logits = tfm.classify(read_params, read, tokens)
    np.testing.assert_allclose(logits, tfm.classify(params, model, tokens), rtol=1e-5, atol=1e-6)
    narrow = dataclasses.replace(model, mixer=Softmax(pattern=window(1, 1)))
    with pytest.raises(ValueError, match="no such folder can hold this model; what does not fit the nearest"):
        to_hf(narrow, params, tmp_path / "narrow", like={"model_type": "longformer"})


@pytest.mark.slow
def test_a_model_of_ours_becomes_a_gpt_neo(tmp_path):
    model = tfm.Config(
        layers=2, heads=2, width=8, vocab=11, length=6, input=Tokens(norm=False, token_types=None), residual=PreNorm(),
        mixer=Softmax(score="dot", qkv_bias=False),
    )  # fmt: skip
    params = random_params(tfm.causal_lm_specs(model))
    to_hf(model, params, tmp_path)
    tokens = np.array([[1, 2, 3]])
    read, read_params = from_hf(tmp_path)
    expected = tfm.causal_lm(params, model, tokens)
    np.testing.assert_allclose(tfm.causal_lm(read_params, read, tokens), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        (
            LONGFORMER,
            {"attention_window": 7},
            "attention_window=7; only an even number, or 3 even ones for the layers of num_hidden_layers=3",
        ),
        (LONGFORMER, {"attention_window": [8, 8]}, "attention_window=[8, 8]; only an even number, or 3 even ones"),
        (LONGFORMER, {"attention_window": 0}, "attention_window=0 must be at least 1"),
        (LONGFORMER, {"attention_window": "8"}, "attention_window='8' must be a whole number"),
        (LONGFORMER, {"global_tokens": 600}, "tokens=600 global tokens are more than length=510"),
        (LONGFORMER, {"pad_token_id": 0}, "pad_token_id=0; of longformer, only 1 is supported"),
        (LED, {"attention_window": [8, 8]}, "attention_window=[8, 8]; only an even number, or 3 even ones"),
        (BIG_BIRD, {"attention_type": "sparse"}, "attention_type=sparse is unknown; did you mean block_sparse?"),
        (BIG_BIRD, {"block_size": 0}, "block_size=0 must be at least 1"),
        (BIG_BIRD, {"block_size": 8192}, "tokens are more than max_position_embeddings=4096"),
        (BIG_BIRD, {"is_decoder": True}, "is_decoder=True; of big_bird, only False is supported"),
        (
            BIG_BIRD,
            {"hidden_act": "mish"},
            "hidden_act='mish'; of big_bird, supported are gelu, gelu_new",
        ),
        (
            GPT_NEO,
            {"attention_types": [[["global"], 4]]},
            "and num_layers=5; of gpt_neo, only that many times global or",
        ),
        (GPT_NEO, {"attention_types": [[["strided"], 5]]}, "of gpt_neo, only that many times global or local are"),
        (
            GPT_NEO,
            {"attention_types": [["global", 5]]},
            "attention_types[0][0]='global' must be a list of texts or a whole number",
        ),
        (GPT_NEO, {"window_size": 0, "attention_types": [[["local"], 5]]}, "window_size=0 must be at least 1"),
    ],
)
def test_what_is_refused(family, fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        config(family, **fields)


def test_answers_of_big_bird_are_refused(tmp_path):
    stored(tmp_path, "big_bird", "BigBirdForMaskedLM")
    fields = read_config(tmp_path) | {"architectures": ["BigBirdForQuestionAnswering"]}
    with pytest.raises(
        ValueError, match=re.escape("architectures=[BigBirdForQuestionAnswering]; of big_bird, supported")
    ):
        open_folder(tmp_path, fields)
