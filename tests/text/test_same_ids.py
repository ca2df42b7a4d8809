"""An exported folder has the ids of the tokenizer that it was made of."""

import json

from tokenizers import Regex, Tokenizer, pre_tokenizers

from train.settings import schema
from train.text import same_ids, tokenize


def bpe():
    return tokenize.train(schema.Tokenizer("bpe", 400), ["in 2023 and 2024 and 2025"] * 3)


def test_other_ids_are_counted():
    tokenizer = bpe()
    assert same_ids.differing(tokenizer, Tokenizer.from_str(tokenizer.to_str())) == 0
    again = Tokenizer.from_str(tokenizer.to_str())
    again.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert same_ids.differing(tokenizer, again) > 0


def test_a_class_that_would_read_other_ids_is_not_named(tmp_path):
    """transformers 5 makes GPT2Tokenizer of a vocabulary alone: it would join the digits that the file splits."""
    tokenizer = bpe()
    config, name = tmp_path / "tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False}
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config.write_text(json.dumps(name))
    same_ids.keep_ids(tmp_path)
    assert json.loads(config.read_text()) == name
    digits = pre_tokenizers.Split(Regex(r"\d"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, tokenizer.pre_tokenizer])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    same_ids.keep_ids(tmp_path)
    assert json.loads(config.read_text()) == name | {"tokenizer_class": "PreTrainedTokenizerFast"}
