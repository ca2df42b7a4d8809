"""The tokens of classes that transformers' constructors have."""

import inspect

import pytest

from train.text.hf_roles import DEFAULTS
from train.text.special import CONFIGURED

transformers = pytest.importorskip("transformers")

CLASSES = {
    "bert": "Bert", "electra": "Electra", "convbert": "ConvBert", "roformer": "RoFormer", "roberta": "Roberta",
    "bart": "Bart", "xlmroberta": "XLMRoberta", "camembert": "Camembert", "mbart": "MBart", "nllb": "Nllb",
    "longformer": "Longformer", "deberta": "Deberta", "debertav2": "DebertaV2", "llama": "Llama", "t5": "T5",
    "marian": "Marian", "qwen2": "Qwen2", "albert": "Albert", "mpnet": "MPNet", "m2m100": "M2M100", "gpt2": "GPT2",
    "gptneox": "GPTNeoX", "openaigpt": "OpenAIGPT", "clip": "CLIP", "siglip": "Siglip", "gemma": "Gemma",
}  # fmt: skip


@pytest.mark.parity
@pytest.mark.parametrize("name", CLASSES)
def test_defaults_are_those_of_the_class(name):
    parameters = inspect.signature(getattr(transformers, f"{CLASSES[name]}Tokenizer").__init__).parameters
    tokens = {role: parameters[f"{role}_token"].default for role in CONFIGURED if f"{role}_token" in parameters}
    assert DEFAULTS[name] == {role: token for role, token in tokens.items() if token is not None}
