"""The old Flax classes against the classes of torch."""

import warnings

import flax
import numpy as np
import pytest
from compat.models import COVERED, DECODERS, FLAX_ONLY, WRITERS, assert_close, opened, paths, saved
from flax import serialization
from hf_models import CACHES, MODELS, as_choices, inputs, torch_model, torch_pixels

import tfm.compat

pytestmark = pytest.mark.parity


def torch_outputs(model):
    """What torch computes: every output, with hidden states and attention weights."""
    import torch

    arrays = {name: torch.from_numpy(values) for name, values in inputs().items()}
    arguments = {"input_ids": arrays["tokens"], "attention_mask": arrays["valid"].long()}
    if model.main_input_name == "pixel_values":
        arguments = {"pixel_values": torch_pixels(model)}
    if model.config.is_encoder_decoder:
        arguments |= {"decoder_input_ids": arrays["target"]}
    elif getattr(model.config, "type_vocab_size", 0) > 1:
        arguments |= {"token_type_ids": arrays["types"]}
    arguments = as_choices(model, arguments)
    with torch.no_grad():
        outputs = model(**arguments, output_hidden_states=True, output_attentions=True)
    outputs = {name: values for name, values in outputs.items() if name not in CACHES and len(values)}
    return {name: values.numpy() for name, values in arguments.items()}, outputs


# Weights that torch records block by block. BigBird also pads its hidden states to whole blocks.
BLOCKED = {"big_bird": ("attentions",), "longt5": ("encoder_attentions",)}


def assert_equal(name, array, torch_array, valid):
    """Compares a result where there are tokens."""
    if name == "hidden_states":
        torch_array = torch_array[:, : valid.shape[1]]
    assert array.shape == torch_array.shape
    if name in ("attentions", "encoder_attentions"):  # a row of a token that is padding is no result
        array, torch_array = np.moveaxis(array, 1, 2), np.moveaxis(torch_array, 1, 2)
    if array.shape[:2] == valid.shape:
        array, torch_array = array[valid], torch_array[valid]
    np.testing.assert_allclose(array, torch_array, atol=1e-4, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(("name", "architecture"), COVERED + FLAX_ONLY)
def test_outputs_equal_torch(name, architecture, tmp_path):
    model = torch_model(name, {"BertForCausalLM": "BertLMHeadModel"}.get(architecture, architecture))
    model.save_pretrained(tmp_path)
    old = getattr(tfm.compat, f"Flax{architecture}").from_pretrained(tmp_path)
    arguments, expected = torch_outputs(model)
    valid = inputs()["valid"]
    for params in (None, old.params):
        outputs = old(**arguments, output_hidden_states=True, output_attentions=True, params=params)
        blocked = set(BLOCKED.get(old.family, ()))
        assert set(outputs) - blocked == set(expected) - blocked
        for name in set(expected) - blocked:
            values = expected[name]
            pairs = zip(outputs[name], values, strict=True) if isinstance(values, tuple) else [(outputs[name], values)]
            for array, torch_array in pairs:
                assert_equal(name, np.asarray(array), torch_array.numpy(), valid)


def test_positions_of_padding_equal_torch(tmp_path):
    """RoBERTa's padding has a position, whose row in the table need not be zeros; every place is compared."""
    import torch

    model = torch_model("roberta", "RobertaModel")
    model.save_pretrained(tmp_path)
    assert model.embeddings.position_embeddings.weight[1].any()
    old = tfm.compat.FlaxRobertaModel.from_pretrained(tmp_path)
    tokens = np.where(inputs()["valid"], inputs()["tokens"], 1)
    tokens[0, 5] = 1
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens)).last_hidden_state.numpy()
    assert_close(old(tokens).last_hidden_state, expected, atol=1e-5)


def test_classes_of_bart_equal_torch(tmp_path):
    """Rows have two ends each, the last of which counts, and padding."""
    import torch

    model = torch_model("bart", "BartForSequenceClassification")
    model.save_pretrained(tmp_path)
    old = tfm.compat.FlaxAutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(old) is tfm.compat.FlaxBartForSequenceClassification
    tokens = inputs()["tokens"].copy()
    tokens[0, [3, 16]] = tokens[1, [2, 10]] = model.config.eos_token_id
    tokens[1, 11:] = model.config.pad_token_id
    mask = (tokens != model.config.pad_token_id).astype(int)
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens), attention_mask=torch.from_numpy(mask)).logits.numpy()
    assert_close(old(tokens, mask).logits, expected, atol=1e-5)


def test_a_decoder_of_the_family_of_bert_equals_torch(tmp_path):
    import torch
    import transformers

    model = opened(tmp_path / "flax", "roberta", "RobertaForCausalLM", is_decoder=True)
    model.save_pretrained(tmp_path / "again")
    torch_model = transformers.RobertaForCausalLM.from_pretrained(tmp_path / "again").eval()
    with torch.no_grad():
        expected = torch_model(torch.from_numpy(inputs()["tokens"])).logits.numpy()
    assert_close(model(inputs()["tokens"]).logits, expected, atol=1e-4)


@pytest.mark.parametrize("name", WRITERS)
def test_generate_equals_torch(name, tmp_path):
    """Greedily, and with beams whose scores are those of transformers; rules included."""
    import torch

    model = torch_model(name, MODELS[name][2][0])
    model.save_pretrained(tmp_path)
    old = getattr(tfm.compat, f"Flax{MODELS[name][2][0]}").from_pretrained(tmp_path)
    tokens, valid = inputs(padded=False)["tokens"][:, :8], np.ones((2, 8), int)
    valid[1, slice(3) if name in DECODERS else slice(5, 8)] = 0
    usual = {"pad_token_id": 1, "eos_token_id": 40, "max_length": 18}
    for options in (
        {},
        {"min_length": 17, "suppress_tokens": [5, 60, 33, 21]},
        {"num_beams": 4, "no_repeat_ngram_size": 2},
        {"num_beams": 3, "early_stopping": True, "length_penalty": 2.0, "forced_eos_token_id": 40},
        {
            "num_beams": 3,
            "early_stopping": "never",
            "length_penalty": 0.5,
            "bad_words_ids": [[n] for n in (60, 54, 77)],
        },
    ):
        arguments = {
            "attention_mask": torch.from_numpy(valid),
            "use_cache": False,
            "return_dict_in_generate": True,
            "output_scores": True,
        }
        with torch.no_grad():
            expected = model.generate(torch.from_numpy(tokens), **arguments, **usual, **options)
        generated = old.generate(tokens, attention_mask=valid, **usual, **options)
        length = expected.sequences.shape[1]
        assert generated.sequences[:, :length].tolist() == expected.sequences.tolist(), options
        assert (np.asarray(generated.sequences[:, length:]) == 1).all()
        if "num_beams" in options:
            np.testing.assert_allclose(generated.scores, expected.sequences_scores.numpy(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "architecture"),
    [("bert", "BertForMaskedLM"), ("gpt2", "GPT2LMHeadModel"), ("bart", "BartForConditionalGeneration")],
)
def test_old_files_equal_torch(name, architecture, tmp_path):
    """flax_model.msgpack as transformers 4 converted it: names split at dots, other last words, matrices transposed."""
    model = torch_model(name, architecture)
    model.config.save_pretrained(tmp_path)
    tables = ("embed", "shared", "wte", "wpe")
    tree = {}
    tensors = {tensor: values.detach().numpy() for tensor, values in model.named_parameters()}
    tensors |= {tensor: values.numpy() for tensor, values in model.named_buffers() if tensor == "final_logits_bias"}
    for tensor, values in tensors.items():
        *parts, last = tensor.split(".")
        if last == "weight" and values.ndim == 1:
            last = "scale"
        elif last == "weight" and any(table in parts[-1] for table in tables):
            last = "embedding"
        elif last == "weight":
            last, values = "kernel", values.T
        tree[(*parts, last)] = values
    (tmp_path / "flax_model.msgpack").write_bytes(serialization.to_bytes(flax.traverse_util.unflatten_dict(tree)))
    old = getattr(tfm.compat, f"Flax{architecture}").from_pretrained(tmp_path)
    assert paths(old.params) == {".".join(path) for path in tree}
    arguments, expected = torch_outputs(model)
    logits = old(**arguments).logits
    valid = inputs()["valid"] if logits.shape[1] == 17 else slice(None)
    np.testing.assert_allclose(np.asarray(logits)[valid], expected["logits"].numpy()[valid], atol=1e-4, rtol=1e-4)


def test_a_configuration_of_transformers(tmp_path):
    """AutoConfig still gives one; so do scripts that train from nothing."""
    import transformers

    saved(tmp_path, "bert", "BertForMaskedLM")
    config = transformers.AutoConfig.from_pretrained(tmp_path, num_labels=4, hidden_dropout_prob=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = tfm.compat.FlaxAutoModelForSequenceClassification.from_pretrained(tmp_path, config=config)
    assert model._program.config.dropout == 0.2
    assert model(inputs()["tokens"]).logits.shape == (2, 4)
    model.save_pretrained(tmp_path / "again")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "again").eval()
    import torch

    with torch.no_grad():
        expected = again(torch.from_numpy(inputs()["tokens"])).logits.numpy()
    assert_close(model(inputs()["tokens"]).logits, expected, atol=1e-4)
