"""Each field of config.json removed or changed: the answer of transformers, or a sentence with the field; no silence.

Where transformers fails, an answer here is no other one.
"""

import json
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from hf_models import inputs, results, torch_model, torch_results
from mutants import ABSENT, mutations

import tfm
from tfm import from_hf

pytestmark = pytest.mark.parity

# They say how a call runs, or what is read without a name here.
CALLS = set(
    "architectures chunk_size_feed_forward dtype gradient_checkpointing id2label is_encoder_decoder label2id "
    "model_type output_attentions output_hidden_states problem_type return_dict transformers_version use_cache".split()
)
# One tower each of CLIP, small; [EOS] ends a text.
END = 49
CLIP = {
    "text_config": dict(
        vocab_size=50, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
        max_position_embeddings=11, eos_token_id=END,
    ),
    "vision_config": dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=8, patch_size=4
    ),
    "projection_dim": 20,
}  # fmt: skip


def texts():
    """Texts of several lengths, filled up with [EOS], int [3,11]."""
    rows = np.random.default_rng(0).integers(0, END, (3, 11))
    for row, end in zip(rows, (10, 5, 7), strict=True):
        row[end:] = END
    return rows


def clip_model(config):
    """CLIP in transformers, with weights that are far from those of its start."""
    import torch
    import transformers

    torch.manual_seed(0)
    model = transformers.CLIPModel(transformers.CLIPConfig(**config)).eval()
    with torch.no_grad():
        for values in model.parameters():
            values.add_(0.3 * torch.randn(values.shape))
    return model


def computed(config, params):
    """What our model computes, by name; of towers, the scores [B,P] of texts and pictures."""
    if not isinstance(params, tfm.Towers):
        return {name: np.asarray(values) for name, values in results(config, params).items() if name != "hidden"}
    valid = jnp.asarray(np.cumsum(texts() == END, axis=1) <= 1)
    pixels = jnp.asarray(inputs()["pixels"].transpose(0, 2, 3, 1))
    vectors = tfm.text_vectors(params, config, jnp.asarray(texts(), jnp.int32), valid)
    return {"scores": np.asarray(jnp.exp(params.log_scale) * vectors @ tfm.image_vectors(params, config, pixels).T)}


def expected(model):
    """What a model of transformers computes, by name."""
    import torch

    if model.config.model_type != "clip":
        return torch_results(model)
    with torch.no_grad():
        ids, pixels = torch.from_numpy(texts()), torch.from_numpy(inputs()["pixels"])
        return {"scores": model(input_ids=ids, pixel_values=pixels).logits_per_text.numpy()}


def transformers_results(folder, architecture):
    """What transformers computes; None where it refuses the folder, or starts weights anew."""
    import transformers

    try:
        model, loading = getattr(transformers, architecture).from_pretrained(
            folder, attn_implementation="eager", dtype="float32", output_loading_info=True
        )
        incomplete = loading["missing_keys"] or loading["mismatched_keys"]
        return None if incomplete else expected(model.eval())
    except Exception:  # whatever its validation, torch or a shape raises
        return None


def difference(values, wanted):
    """How far two results are apart, where both have numbers that are no padding; inf for other shapes."""
    if values.shape[:-1] != wanted.shape[:-1] or values.shape[-1] < wanted.shape[-1]:
        return np.inf
    distances, valid = np.abs(values[..., : wanted.shape[-1]] - wanted), inputs()["valid"]
    return (distances[valid] if distances.shape[:2] == valid.shape else distances).max()


def verdict(folder, architecture, field, results_of):
    """Why an answer is silently another one; "" where it is equal, refused or said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            config, params = from_hf(folder)
        except ValueError as error:
            return "" if field in str(error) else f"refused without its name: {error}"
    if any(field in str(warning.message) for warning in caught):
        return ""
    shape = config.input.array_shape
    if len(shape or ()) > 2 and max(shape[-3:-1]) > inputs()["pixels"].shape[-1]:
        return ""  # a pass refuses pictures of another size
    own, expected = results_of(config, params), transformers_results(folder, architecture)
    if expected is None:
        return ""
    differences = {name: difference(own[name], expected[name]) for name in own.keys() & expected.keys()}
    assert differences
    return "" if max(differences.values()) < 1e-3 else f"differs by {differences}"


def entries(fields):
    """The fields of config.json with their paths: those of towers one by one."""
    for field, value in fields.items():
        if field in CLIP and isinstance(value, dict):
            yield from (((field, name), entry) for name, entry in value.items() if not name.endswith("_token_id"))
        else:
            yield (field,), value


def changed(fields, path, value):
    """The fields with another value at a path, or without it."""
    field, *rest = path
    entry = changed(fields[field], rest, value) if rest else value
    return {name: old for name, old in (fields | {field: entry}).items() if old is not ABSENT}


def silent_answers(folder, architecture):
    """By field and value of config.json, why an answer is silently another one."""
    path = folder / "config.json"
    fields = json.loads(path.read_text())
    outputs = {}

    def results_of(config, params):
        if repr(config) not in outputs:
            outputs[repr(config)] = computed(config, params)
        return outputs[repr(config)]

    silent = {}
    for field, value in entries(fields):
        for mutant in mutations(field[-1], value) if field[-1] not in CALLS else ():
            path.write_text(json.dumps(changed(fields, field, mutant)))
            if reason := verdict(folder, architecture, field[-1], results_of):
                silent[".".join(field), repr(mutant)] = reason
    assert len([*entries(fields)]) > 15
    return silent


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("albert", "AlbertForMaskedLM"),
        ("xlm_roberta", "XLMRobertaForMaskedLM"),
        ("camembert", "CamembertForSequenceClassification"),
        ("t5", "T5ForConditionalGeneration"),
        ("bart", "BartForConditionalGeneration"),
        ("llama", "LlamaForCausalLM"),
        ("qwen2", "Qwen2ForCausalLM"),
        ("gpt2", "GPT2LMHeadModel"),
        ("vit", "ViTForImageClassification"),
        ("bert", "BertForPreTraining"),
        ("vit", "ViTModel"),
        ("vit_mae", "ViTMAEModel"),
        ("dinov3_vit", "DINOv3ViTModel"),
        ("reformer_encoder", "ReformerModel"),
    ],
)
def test_no_field_is_read_otherwise_in_silence(tmp_path, name, architecture):
    torch_model(name, architecture).save_pretrained(tmp_path)
    assert not silent_answers(tmp_path, architecture)


def test_no_field_of_two_towers_is_read_otherwise_in_silence(tmp_path):
    clip_model(CLIP).save_pretrained(tmp_path)
    assert not silent_answers(tmp_path, "CLIPModel")
