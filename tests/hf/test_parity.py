"""Every family and head here and in transformers: out of a folder, and back into one."""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hf_models import (
    CACHES,
    CASES,
    DEBERTA,
    MODELS,
    MODERNBERT,
    NYSTROMFORMER,
    as_choices,
    global_tokens,
    inputs,
    results,
    torch_model,
    torch_pixels,
    torch_results,
)

import tfm
from tfm import from_hf, to_hf

pytestmark = pytest.mark.parity
WRITERS = [
    (name, architecture)
    for name, architecture in CASES
    if architecture.endswith(("LM", "LMHeadModel", "Generation", "MTModel"))
    or name == "reformer_one_chunk"  # what a token sees in several chunks depends on later ones
]
WRITERS = [case for case in WRITERS if "MaskedLM" not in case[1]]
GROWING = [case for case in WRITERS if case[0] == "llama_dynamic"]  # here a text has one base from its first token on
WRITERS = [case for case in WRITERS if case not in GROWING]
HEADS = [
    case
    for case in CASES
    if case not in WRITERS + GROWING
    and not case[1].endswith(("Model", "Modeling", "WithTeacher", "WithLMHead", "Detection"))
]


def assert_equal(outputs, expected, valid):
    """Compares the results that transformers has, where there are tokens."""
    compared = [name for name in expected if name in outputs]
    assert set(compared) >= {"hidden"}
    assert len(compared) > 1
    for name in compared:
        torch_values, values = expected[name], np.asarray(outputs[name])
        values = values[tuple(slice(0, size) for size in torch_values.shape)]
        if torch_values.ndim > 1 and torch_values.shape[:2] == valid.shape:
            values, torch_values = values[valid], torch_values[valid]
        np.testing.assert_allclose(values, torch_values, atol=1e-4, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(("name", "architecture"), CASES)
def test_there_and_back(name, architecture, tmp_path):
    model = torch_model(name, architecture)
    model.save_pretrained(tmp_path / "read")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "[^|]* also has ")  # what transformers saves itself is no news
        config, params = from_hf(tmp_path / "read")
    expected, valid = torch_results(model), inputs()["valid"]
    assert_equal(results(config, params), expected, valid)
    to_hf(config, params, tmp_path / "written", like=tmp_path / "read")
    model_again = type(model).from_pretrained(tmp_path / "written", attn_implementation="eager").eval()
    rounds = "t5" in name or "switch" in name  # the factors of T5's matrices do
    outputs = torch_results(model_again)
    for output, values in expected.items():
        if output not in CACHES:
            np.testing.assert_allclose(
                outputs[output], values, atol=1e-4 if rounds else 3e-5, rtol=1e-5, err_msg=output
            )
    params_again = from_hf(tmp_path / "written")[1]
    equal = jax.tree.map(lambda array, expected: bool((array == expected).all()), params_again, params)
    assert rounds or all(jax.tree.leaves(equal))


@pytest.mark.parametrize(
    ("model_type", "architecture", "fields"),
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
def test_fields_that_are_written_in_another_way(model_type, architecture, fields, tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS, "variant", (model_type, fields, []))
    model = torch_model("variant", architecture)
    model.save_pretrained(tmp_path / "read")
    config, params = from_hf(tmp_path / "read")
    expected = torch_results(model)
    assert_equal(results(config, params), expected, inputs()["valid"])
    to_hf(config, params, tmp_path / "written", like=tmp_path / "read")
    model_again = type(model).from_pretrained(tmp_path / "written", attn_implementation="eager").eval()
    np.testing.assert_allclose(torch_results(model_again)["logits"], expected["logits"], atol=3e-5, rtol=1e-5)


def test_landmarks_of_nystromformer(tmp_path, monkeypatch):
    """transformers reads texts of `segment_means_seq_len` tokens alone, and none with padding."""
    import torch

    fields = NYSTROMFORMER | dict(num_landmarks=4, segment_means_seq_len=16, max_position_embeddings=16)
    monkeypatch.setitem(MODELS, "variant", ("nystromformer", fields, []))
    model = torch_model("variant", "NystromformerForMaskedLM")
    model.save_pretrained(tmp_path / "read")
    config, params = from_hf(tmp_path / "read")
    tokens = inputs()["tokens"][:, :16]
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens)).logits.numpy()
    hidden = tfm.encoder(params.encoder, config, jnp.asarray(tokens))
    logits = tfm.mlm_logits(params.head, config, hidden, params.encoder.embed.tokens)[..., :103]
    np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=1e-4)
    to_hf(config, params, tmp_path / "written", like=tmp_path / "read")
    model_again = type(model).from_pretrained(tmp_path / "written", attn_implementation="eager").eval()
    with torch.no_grad():
        np.testing.assert_allclose(model_again(torch.from_numpy(tokens)).logits, expected, atol=1e-5, rtol=1e-5)


def losses(model, outputs):
    """The loss of transformers and ours: of every token after those before it, or of every token of the target."""
    import torch

    arrays = inputs(padded=False)
    if model.config.is_encoder_decoder:
        target = torch.from_numpy(arrays["target"])
        arguments = {"decoder_input_ids": target, "labels": target}
        logits, targets = outputs["logits"], arrays["target"]
    else:
        arguments = {"labels": torch.from_numpy(arrays["tokens"])}
        logits, targets = outputs["logits"][:, :-1], arrays["tokens"][:, 1:]
    arguments |= global_tokens(model, arrays["tokens"])
    with torch.no_grad():
        expected = model(torch.from_numpy(arrays["tokens"]), **arguments).loss.item()
    return expected, float(tfm.cross_entropy(logits, jnp.asarray(targets)).mean())


@pytest.mark.parametrize(("name", "architecture"), WRITERS)
def test_loss_greedy_and_beams(name, architecture, tmp_path):
    import torch

    model = torch_model(name, architecture)
    model.save_pretrained(tmp_path)
    config, params = from_hf(tmp_path)
    expected, loss = losses(model, results(config, params, padded=False))
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    tokens = inputs(padded=False)["tokens"][:, :8]
    for module in model.get_decoder().modules():
        if hasattr(module, "expert_capacity"):
            module.expert_capacity = 64  # a token that is read alone has room, and without a cache none is
    arguments = {
        "max_new_tokens": 12,
        "min_new_tokens": 12,
        "do_sample": False,
        "pad_token_id": 1,
        "bos_token_id": None,
        "eos_token_id": None,
        "forced_eos_token_id": None,
        "length_penalty": 0.0,
        "use_cache": False,
        "attention_mask": torch.ones(tokens.shape, dtype=torch.long),
        **global_tokens(model, tokens),
    }
    with torch.no_grad():
        greedy = model.generate(torch.from_numpy(tokens), **arguments).numpy()
        beams = model.generate(torch.from_numpy(tokens), num_beams=4, **arguments).numpy()
    writer, prompts = params, tokens.tolist()
    if isinstance(params, tfm.Seq2Seq):
        writer = tfm.encode_source(params, config, jnp.asarray(tokens))
        prompts = [[model.config.decoder_start_token_id]] * 2
    start = len(prompts[0])
    assert tfm.generate(writer, config, prompts, 12).tokens == greedy[:, start:].tolist()
    hypotheses = tfm.beam_search(writer, config, prompts, 12, tfm.Beam(4))
    assert [row[0].tokens for row in hypotheses] == beams[:, start:].tolist()


def entropies(outputs, **labels):
    """The sum of the mean cross entropies of some logits."""
    return sum(float(tfm.cross_entropy(outputs[name], jnp.asarray(targets)).mean()) for name, targets in labels.items())


def labelled(architecture, outputs, tokens):
    """Labels for transformers, and the loss that they give our logits."""
    positions, classes = np.array([3, 11]), np.array([0, 1])
    if architecture.endswith("MaskedLM"):
        return {"labels": tokens}, entropies(outputs, logits=tokens)
    if architecture.endswith(
        ("SequenceClassification", "ImageClassification", "VideoClassification", "AudioClassification")
    ):
        return {"labels": classes * 4}, entropies(outputs, logits=classes * 4)
    if architecture.endswith("TokenClassification"):
        return {"labels": tokens % 5}, entropies(outputs, logits=tokens % 5)
    if architecture.endswith("SemanticSegmentation"):
        logits = np.moveaxis(outputs["logits"], 1, -1)
        labels = np.arange(logits[..., 0].size).reshape(logits.shape[:-1]) % logits.shape[-1]
        return {"labels": labels}, entropies({"logits": jnp.asarray(logits)}, logits=labels)
    if architecture.endswith("QuestionAnswering"):
        spans = {"start_positions": positions, "end_positions": positions + 2}
        return spans, entropies(outputs, start_logits=positions, end_logits=positions + 2) / 2
    if architecture.endswith("MultipleChoice"):
        return {"labels": classes[1:]}, entropies(outputs, logits=classes[1:])
    if architecture.endswith("NextSentencePrediction"):
        return {"labels": classes}, entropies(outputs, logits=classes)
    if architecture.startswith("Electra"):
        signs = np.where(tokens % 2, 1.0, -1.0)  # a token is replaced, or it is not
        return {"labels": tokens % 2}, float(np.log1p(np.exp(-signs * outputs["logits"])).mean())
    pair_label = "sentence_order_label" if architecture.startswith("Albert") else "next_sentence_label"
    loss = entropies(outputs, prediction_logits=tokens, **{PAIR_LOGITS[pair_label]: classes})
    return {"labels": tokens, pair_label: classes}, loss


PAIR_LOGITS = {"sentence_order_label": "sop_logits", "next_sentence_label": "seq_relationship_logits"}


@pytest.mark.parametrize(("name", "architecture"), HEADS)
def test_losses_of_heads(name, architecture, tmp_path):
    import torch

    model = torch_model(name, architecture)
    model.save_pretrained(tmp_path)
    config, params = from_hf(tmp_path)
    arrays = inputs(padded=False)
    labels, loss = labelled(architecture, results(config, params, padded=False), arrays["tokens"])
    types = {"token_type_ids": arrays["types"]} if config.sizes.get("Y", 0) > 1 else {}
    mask = {"attention_mask": arrays["valid"].astype(int)}  # ModernBERT cannot do without where it takes the mean
    if model.main_input_name in ("pixel_values", "input_values"):
        arguments = {model.main_input_name: torch_pixels(model).numpy()}
    else:
        arguments = as_choices(
            model, {"input_ids": arrays["tokens"]} | types | mask | global_tokens(model, arrays["tokens"])
        )
    with torch.no_grad():
        tensors = {name: torch.as_tensor(values) for name, values in (arguments | labels).items()}
        expected = model(**tensors).loss.item()
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


def test_a_config_json_of_ours_says_everything(tmp_path):
    """Without `like`, the family is found, and the fields are those that transformers would read."""
    model = torch_model("bert", "BertForMaskedLM")
    model.save_pretrained(tmp_path / "read")
    config, params = from_hf(tmp_path / "read")
    to_hf(config, params, tmp_path / "written")
    assert json.loads((tmp_path / "written/config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    assert from_hf(tmp_path / "written")[0] == config


@pytest.mark.parametrize("kind", ["modernbert", "marian", "llama_stretched"])
def test_small_models_of_ours_load(kind, tmp_path):
    """Written without `like`, whose ids and positions must be those that transformers can read."""
    architecture = MODELS[kind][2][min(1, len(MODELS[kind][2]) - 1)]
    model = torch_model(kind, architecture)
    model.save_pretrained(tmp_path / "read")
    config, params = from_hf(tmp_path / "read")
    like = {"model_type": MODELS[kind][0], "architectures": [architecture]}
    to_hf(config, params, tmp_path / "written", like=like)
    model_again = type(model).from_pretrained(tmp_path / "written", attn_implementation="eager").eval()
    np.testing.assert_allclose(torch_results(model_again)["hidden"], torch_results(model)["hidden"], atol=3e-5)
