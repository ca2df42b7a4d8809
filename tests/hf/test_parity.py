"""Every family and head here and in transformers: out of a folder, and back into one."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hf_models import CASES, DEBERTA, MODELS, MODERNBERT, inputs, ours, predictions, torch_model

import tfm
from tfm import from_hf, to_hf

pytestmark = pytest.mark.parity
WRITERS = [
    (name, architecture)
    for name, architecture in CASES
    if architecture.endswith(("LM", "LMHeadModel", "Generation", "MTModel"))
]
WRITERS = [case for case in WRITERS if "MaskedLM" not in case[1]]
HEADS = [case for case in CASES if case not in WRITERS and not case[1].endswith("Model")]


def assert_equal(found, expected, valid):
    """Each result that transformers has, where there are tokens."""
    compared = [name for name in expected if name in found]
    assert set(compared) >= {"hidden"}
    assert len(compared) > 1
    for name in compared:
        theirs = expected[name]
        mine = np.asarray(found[name])
        mine = mine[tuple(slice(0, size) for size in theirs.shape)]
        if theirs.ndim > 1 and theirs.shape[:2] == valid.shape:
            mine, theirs = mine[valid], theirs[valid]
        np.testing.assert_allclose(mine, theirs, atol=1e-4, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(("name", "architecture"), CASES)
def test_there_and_back(name, architecture, tmp_path):
    model = torch_model(name, architecture)
    model.save_pretrained(tmp_path / "theirs")
    config, params = from_hf(tmp_path / "theirs")
    expected, valid = predictions(model), inputs()["valid"]
    assert_equal(ours(config, params), expected, valid)
    to_hf(config, params, tmp_path / "ours", like=tmp_path / "theirs")
    again = type(model).from_pretrained(tmp_path / "ours", attn_implementation="eager").eval()
    back = predictions(again)
    for each, values in expected.items():
        if each != "past_key_values":
            np.testing.assert_allclose(back[each], values, atol=3e-5, rtol=1e-5, err_msg=each)
    same = jax.tree.map(lambda one, two: bool((one == two).all()), params, from_hf(tmp_path / "ours")[1])
    assert all(jax.tree.leaves(same)) or name.startswith("t5")  # factors round


@pytest.mark.parametrize(
    ("kind", "architecture", "fields"),
    [
        # The masked-LM head has other names, and distances reach as far as positions.
        (
            "deberta-v2",
            "DebertaV2ForMaskedLM",
            DEBERTA | dict(pos_att_type="c2p|p2c", max_relative_positions=-1, legacy=False),
        ),
        # No layer sees everything, so that one of the two bases is of none.
        ("modernbert", "ModernBertForMaskedLM", MODERNBERT | dict(layer_types=["sliding_attention"] * 5)),
    ],
)
def test_fields_that_are_written_in_another_way(kind, architecture, fields, tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS, "other", (kind, fields, []))
    model = torch_model("other", architecture)
    model.save_pretrained(tmp_path / "theirs")
    config, params = from_hf(tmp_path / "theirs")
    expected = predictions(model)
    assert_equal(ours(config, params), expected, inputs()["valid"])
    to_hf(config, params, tmp_path / "ours", like=tmp_path / "theirs")
    again = type(model).from_pretrained(tmp_path / "ours", attn_implementation="eager").eval()
    np.testing.assert_allclose(predictions(again)["logits"], expected["logits"], atol=3e-5, rtol=1e-5)


def losses(model, found, name):
    """The loss of transformers, and ours from logits [B,T,V]: of every token after those before it, or of every token of the target."""
    import torch

    given = inputs(padded=False)
    if model.config.is_encoder_decoder:
        arguments = {
            "decoder_input_ids": torch.from_numpy(given["target"]),
            "labels": torch.from_numpy(given["target"]),
        }
        logits, targets = found["logits"], given["target"]
    else:
        arguments = {"labels": torch.from_numpy(given["tokens"])}
        logits, targets = found["logits"][:, :-1], given["tokens"][:, 1:]
    with torch.no_grad():
        expected = model(torch.from_numpy(given["tokens"]), **arguments).loss.item()
    return expected, float(tfm.cross_entropy(logits, jnp.asarray(targets)).mean())


@pytest.mark.parametrize(("name", "architecture"), WRITERS)
def test_loss_greedy_and_beams(name, architecture, tmp_path):
    import torch

    model = torch_model(name, architecture)
    model.save_pretrained(tmp_path)
    config, params = from_hf(tmp_path)
    expected, loss = losses(model, ours(config, params, padded=False), name)
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    tokens = inputs(padded=False)["tokens"][:, :8]
    arguments = {
        "max_new_tokens": 12,
        "min_new_tokens": 12,
        "do_sample": False,
        "pad_token_id": 1,
        "eos_token_id": None,
    }
    arguments |= {"bos_token_id": None, "forced_eos_token_id": None, "length_penalty": 0.0, "use_cache": False}
    with torch.no_grad():
        given = {"attention_mask": torch.ones(tokens.shape, dtype=torch.long), **arguments}
        greedy = model.generate(torch.from_numpy(tokens), **given).numpy()
        beams = model.generate(torch.from_numpy(tokens), num_beams=4, **given).numpy()
    writer, prompts = params, tokens.tolist()
    if isinstance(params, tfm.Seq2Seq):
        writer = tfm.encode_source(params, config, jnp.asarray(tokens))
        prompts = [[model.config.decoder_start_token_id]] * 2
    begun = len(prompts[0])
    assert tfm.generate(writer, config, prompts, 12).tokens == greedy[:, begun:].tolist()
    found = tfm.beam_search(writer, config, prompts, 12, tfm.Beam(4))
    assert [row[0].tokens for row in found] == beams[:, begun:].tolist()


def entropies(found, **labels):
    """The sum of the mean cross entropies of some logits."""
    return sum(float(tfm.cross_entropy(found[name], jnp.asarray(targets)).mean()) for name, targets in labels.items())


def labelled(architecture, found, given):
    """Labels for transformers, and the loss that they give our logits."""
    tokens, spots, two = given["tokens"], np.array([3, 11]), np.array([0, 1])
    if architecture.endswith("MaskedLM"):
        return {"labels": tokens}, entropies(found, logits=tokens)
    if architecture.endswith("SequenceClassification"):
        return {"labels": two * 4}, entropies(found, logits=two * 4)
    if architecture.endswith("TokenClassification"):
        return {"labels": tokens % 5}, entropies(found, logits=tokens % 5)
    if architecture.endswith("QuestionAnswering"):
        places = {"start_positions": spots, "end_positions": spots + 2}
        return places, entropies(found, start_logits=spots, end_logits=spots + 2) / 2
    if architecture.endswith("NextSentencePrediction"):
        return {"labels": two}, entropies(found, logits=two)
    if architecture.startswith("Electra"):
        signs = np.where(tokens % 2, 1.0, -1.0)  # a token is replaced, or it is not
        return {"labels": tokens % 2}, float(np.log1p(np.exp(-signs * found["logits"])).mean())
    other = "sentence_order_label" if architecture.startswith("Albert") else "next_sentence_label"
    return {"labels": tokens, other: two}, entropies(found, prediction_logits=tokens, **{NEXT[other]: two})


NEXT = {"sentence_order_label": "sop_logits", "next_sentence_label": "seq_relationship_logits"}


@pytest.mark.parametrize(("name", "architecture"), HEADS)
def test_losses_of_heads(name, architecture, tmp_path):
    import torch

    model = torch_model(name, architecture)
    model.save_pretrained(tmp_path)
    config, params = from_hf(tmp_path)
    given = inputs(padded=False)
    labels, loss = labelled(architecture, ours(config, params, padded=False), given)
    given = (
        {"input_ids": given["tokens"]} | ({"token_type_ids": given["types"]} if config.token_types > 1 else {}) | labels
    )
    with torch.no_grad():
        expected = model(**{each: torch.from_numpy(values) for each, values in given.items()}).loss.item()
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


def test_a_config_json_of_ours_says_everything(tmp_path):
    """Without `like`, the family is found, and the fields are those that transformers would read."""
    model = torch_model("bert", "BertForMaskedLM")
    model.save_pretrained(tmp_path / "theirs")
    config, params = from_hf(tmp_path / "theirs")
    to_hf(config, params, tmp_path / "ours")
    assert json.loads((tmp_path / "ours/config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    assert from_hf(tmp_path / "ours")[0] == config
