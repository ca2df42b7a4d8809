"""Each field of config.json removed or changed: the answer of transformers, or a sentence with the field; no silence.

Where transformers fails, an answer here is no other one.
"""

import json
import warnings

import numpy as np
import pytest
from hf_models import inputs, results, torch_model, torch_results

from tfm import from_hf

pytestmark = pytest.mark.parity

ABSENT = object()
# They say how a call runs, or what is read without a name here.
CALLS = set(
    "architectures chunk_size_feed_forward dtype gradient_checkpointing id2label is_encoder_decoder label2id "
    "model_type output_attentions output_hidden_states problem_type return_dict transformers_version use_cache".split()
)
ACTIVATIONS = ("gelu", "relu", "gelu_new", "silu")


def mutations(field, value):
    """Other values of a field."""
    if isinstance(value, bool):
        values = [not value, "yes"]
    elif isinstance(value, int):
        values = [value + 1, value - 1, 2 * value, 0, str(value)]
    elif isinstance(value, float):
        values = [2 * value + 0.05, 0.0, str(value)]
    elif isinstance(value, str):
        values = [name for name in ACTIVATIONS if name != value] if "act" in field else ["other"]
    elif isinstance(value, list):
        values = [value[:-1], [*value, *value[-1:]], value[::-1]]
    elif isinstance(value, dict):
        values = [{**value, name: changed} for name in value for changed in (mutations(name, value[name]))]
        values = [{name: entry for name, entry in mutant.items() if entry is not ABSENT} for mutant in values]
    else:
        values = [True, 1, 5, 0.5]
    return [ABSENT, *([] if value is None else [None]), *(mutant for mutant in values if repr(mutant) != repr(value))]


def transformers_logits(folder, architecture):
    """What transformers computes; None where it refuses the folder, or starts weights anew."""
    import transformers

    try:
        model, loading = getattr(transformers, architecture).from_pretrained(
            folder, attn_implementation="eager", dtype="float32", output_loading_info=True
        )
        incomplete = loading["missing_keys"] or loading["mismatched_keys"]
        return None if incomplete else torch_results(model.eval())["logits"]
    except Exception:  # whatever its validation, torch or a shape raises
        return None


def verdict(folder, architecture, field, logits_of):
    """Why an answer is silently another one; "" where it is equal, refused or said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            config, params = from_hf(folder)
        except ValueError as error:
            return "" if field in str(error) else f"refused without its name: {error}"
    if any(field in str(warning.message) for warning in caught):
        return ""
    logits, expected = logits_of(config, params), transformers_logits(folder, architecture)
    if expected is None:
        return ""
    if logits.shape[:-1] != expected.shape[:-1] or logits.shape[-1] < expected.shape[-1]:
        return f"{logits.shape} and {expected.shape}"
    difference = np.abs(logits[..., : expected.shape[-1]] - expected)
    valid = inputs()["valid"]
    difference = difference[valid] if difference.shape[:2] == valid.shape else difference
    return "" if difference.max() < 1e-3 else f"differs by {difference.max():.2g}"


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("albert", "AlbertForMaskedLM"),
        ("xlm_roberta", "XLMRobertaForMaskedLM"),
        ("camembert", "CamembertForSequenceClassification"),
        ("t5", "T5ForConditionalGeneration"),
        ("llama", "LlamaForCausalLM"),
        ("qwen2", "Qwen2ForCausalLM"),
        ("gpt2", "GPT2LMHeadModel"),
    ],
)
def test_no_field_is_read_otherwise_in_silence(tmp_path, name, architecture):
    torch_model(name, architecture).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    computed = {}

    def logits_of(config, params):
        if repr(config) not in computed:
            computed[repr(config)] = np.asarray(results(config, params)["logits"])
        return computed[repr(config)]

    silent = {}
    for field, value in fields.items():
        for changed in mutations(field, value) if field not in CALLS else ():
            mutant = {key: entry for key, entry in (fields | {field: changed}).items() if entry is not ABSENT}
            path.write_text(json.dumps(mutant))
            if reason := verdict(tmp_path, architecture, field, logits_of):
                silent[field, repr(changed)] = reason
    assert len(fields) > 15
    assert not silent
