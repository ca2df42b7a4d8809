"""Special tokens that a folder without tokenizer.json renames, flags or lacks: refused or said, with the field."""

import json
import warnings

import pytest
from sentencepiece_files import fairseq, pieces

from train.text import tokenizer_classes

WORDS = {"a": 0, "\u0120": 1, "<x>": 2, "a</w>": 3, "\u0120a": 4}
FLAGS = {"__type": "AddedToken", "lstrip": True, "normalized": False, "special": True}
NUMBERED = {"2": {"content": "<x>", "lstrip": False, "normalized": False, "special": True}}
WHOLE = {"eos_token": "<x>", "pad_token": "<x>", "unk_token": "<x>", "bos_token": "<x>"}


def read(folder, name, files=None, **fields):
    """The tokenizer of a folder of a class, by default of pairs of characters."""
    files = {"vocab.json": json.dumps(WORDS), "merges.txt": "#version: 0.2\n\u0120 a\n"} if files is None else files
    for file, content in files.items():
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, **fields}))
    return tokenizer_classes.read(folder)


@pytest.mark.parametrize(
    ("name", "fields", "sentence"),
    [
        ("Qwen2Tokenizer", WHOLE | {"eos_token": FLAGS | {"content": "<x>"}}, "eos_token takes the spaces around it"),
        ("Qwen2Tokenizer", {"pad_token": "<x>", "unk_token": "<x>"}, "lacks <.endoftext.>, the eos_token of the class"),
    ],
)
def test_said_with_the_field(tmp_path, name, fields, sentence):
    with pytest.warns(UserWarning, match=sentence):
        read(tmp_path, name, **fields)


def test_nothing_is_said_of_tokens_that_are_there(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(tmp_path, "Qwen2Tokenizer", **WHOLE).encode("a<x> a").ids == [0, 2, 4]
        read(tmp_path, "Qwen2Tokenizer", **WHOLE, added_tokens_decoder=NUMBERED)


@pytest.mark.parametrize(
    ("name", "fields", "sentence"),
    [
        ("CLIPTokenizer", WHOLE | {"unk_token": "<new>"}, "unk_token=<new> is no token of vocab.json"),
        (
            "GPT2Tokenizer",
            WHOLE | {"bos_token": FLAGS | {"content": "<x>"}, "added_tokens_decoder": NUMBERED},
            "bos_token has lstrip=true, and added_tokens_decoder.2 has lstrip=false; make them equal",
        ),
    ],
)
def test_refused_with_the_field(tmp_path, name, fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        read(tmp_path, name, **fields)


@pytest.mark.parity
@pytest.mark.parametrize("field", ["bos_token", "eos_token"])
def test_a_renamed_mark_of_xlm_r_leaves_another_role_without_a_token(tmp_path, field):
    role, default = {"bos_token": ("cls_token", "<s>"), "eos_token": ("sep_token", "</s>")}[field]
    with pytest.warns(UserWarning, match=f"lacks {default}, the {role} of the class, as {field} is <new>"):
        read(tmp_path, "XLMRobertaTokenizer", fairseq(), **{field: "<new>"})


@pytest.mark.parity
@pytest.mark.parametrize(
    ("fields", "is_equal"),
    [({"bos_token": None}, True), ({"eos_token": None, "add_eos_token": True}, True), ({}, False)],
)
def test_marks_and_spaces_of_llama_are_those_of_transformers(tmp_path, fields, is_equal):
    """But behind a special token, where legacy is not false: that is said."""
    import transformers

    options = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}
    files = pieces("tokenizer.model", model_type="bpe", allow_whitespace_only_pieces=True, **options)
    legacy = {"legacy": False} if is_equal else {}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tokenizer = read(tmp_path, "LlamaTokenizer", files, add_bos_token=True, **legacy, **fields)
    reference = transformers.LlamaTokenizer.from_pretrained(tmp_path)
    texts = ["the cat", "a</s>the cat"]
    assert [tokenizer.encode(text).ids == reference(text).input_ids for text in texts] == [True, is_equal]
    assert any("legacy is true" in str(warning.message) for warning in said) != is_equal
