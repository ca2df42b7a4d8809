"""The tokens of classes that transformers' constructors have."""

import inspect

import pytest

from train.text.default_tokens import BY_NAME
from train.text.special import CONFIGURED

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
    transformers = pytest.importorskip("transformers")
    parameters = inspect.signature(getattr(transformers, f"{CLASSES[name]}Tokenizer").__init__).parameters
    fields = [f"{role}_token" for role in CONFIGURED if f"{role}_token" in parameters]
    tokens = {field: parameters[field].default for field in fields}
    assert BY_NAME[name] == {field: token for field, token in tokens.items() if token is not None}
