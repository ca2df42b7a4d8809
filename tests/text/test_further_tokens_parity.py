"""Special tokens of further fields against transformers."""

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from train.text import hf_tokenizer

pytestmark = pytest.mark.parity


class Sizes:
    vocab = 100


@pytest.mark.parametrize(
    "fields",
    [
        {"image_token": "<new>"},
        {"image_token": {"content": "<new>", "lstrip": True}},
        {"image_token": {"__type": "AddedToken", "content": "<new>", "lstrip": True}},
        {"model_specific_special_tokens": {"image_token": "<new>"}},
        {"extra_special_tokens": {"image_token": "<new>"}},
    ],
)
def test_ids_are_those_of_transformers(fields, tmp_path):
    import transformers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "w": 1, "<": 2, "new": 3, ">": 4}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    options = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", **fields}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    text, expected = "w <new> w<new>", transformers.AutoTokenizer.from_pretrained(tmp_path)
    own = hf_tokenizer.read(tmp_path, Sizes).encode(text).ids
    assert own == expected(text).input_ids
