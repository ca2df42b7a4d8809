"""The roles of special tokens, as a folder's files name them."""

import dataclasses
import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import tfm
from train.data.processors import TOKENIZER
from train.screens.console import Log
from train.settings import schema
from train.text import hf_roles, special, tokenize

WORDS = ["<unk>", "<s>", "</s>", "<pad>", "[SEP]", "<|im_end|>", "[MASK]", "a", "b"]


def word_tokenizer(first=None):
    """A tokenizer that knows WORDS, and may put a token before a text."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if first:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first} $A", special_tokens=[(first, WORDS.index(first))]
        )
    return tokenizer


def configured(folder, config, tokenizer=None, fields=(), **files):
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return hf_roles.configured(folder, tokenizer or word_tokenizer(), dict(fields))


def roles(tokenizer):
    return {role: WORDS[token] for role, token in special.role_ids(tokenizer).items() if token >= 0}


def test_a_configuration_names_the_end_whatever_else_the_vocabulary_has(tmp_path):
    tokenizer = configured(tmp_path, {"eos_token": "<|im_end|>", "pad_token": {"content": "</s>", "lstrip": False}})
    assert roles(tokenizer)["last"] == roles(tokenizer)["sep"] == "<|im_end|>"
    assert roles(tokenizer)["pad"] == "</s>"
    assert special.special_tokens(tokenizer).mask == -1  # [MASK] is a word that no file names


def test_a_document_begins_with_what_the_tokenizer_puts_before_a_text(tmp_path):
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    assert special.document_marks(configured(tmp_path, config, word_tokenizer("<s>"))) == (1, 2)
    assert special.document_marks(configured(tmp_path, config)) == (2, 2)
    assert special.document_marks(word_tokenizer("<s>")) == (4, 4)  # without a configuration: [SEP]


def test_the_map_of_special_tokens_counts_beside_an_old_configuration(tmp_path):
    config = {"pad_token": "<pad>"}
    tokenizer = configured(tmp_path, config, special_tokens_map={"eos_token": {"content": "b"}})
    assert (roles(tokenizer)["last"], roles(tokenizer)["pad"]) == ("b", "<pad>")
    assert roles(configured(tmp_path, {**config, "added_tokens_decoder": {}}))["last"] == "<pad>"
    for decoder in ({}, {"added_tokens_decoder": {}}):
        with pytest.raises(ValueError, match=r"eos_token is '</s>' in tokenizer_config.json and 'b' in special_tokens"):
            configured(tmp_path, {**config, "eos_token": "</s>", **decoder})
    null = {"special_tokens_map": {"pad_token": None}}  # counts too, where the map does
    with pytest.raises(ValueError, match=r"pad_token is '<pad>' in tokenizer_config.json and null in special_tokens"):
        configured(tmp_path, config, **null)
    assert roles(configured(tmp_path, {**config, "added_tokens_decoder": {}}, **null))["pad"] == "<pad>"


def test_a_class_and_then_config_json_say_what_the_configuration_leaves_out(tmp_path):
    tokenizer = configured(tmp_path, {"tokenizer_class": "LlamaTokenizerFast"}, fields={"eos_token_id": 5})
    assert roles(tokenizer)["last"] == "</s>"
    tokenizer = configured(tmp_path, {"tokenizer_class": "PreTrainedTokenizerFast"}, fields={"eos_token_id": [5, 2]})
    assert roles(tokenizer)["last"] == "<|im_end|>"
    assert roles(configured(tmp_path, {"tokenizer_class": "Other", "eos_token": None}))["last"] == "<unk>"  # id 0


def test_a_file_with_a_chat_template_comes_before_another_template(tmp_path):
    config = {"eos_token": "</s>", "chat_template": "field"}
    assert configured(tmp_path, config).fields["chat_template"] == "field"
    (tmp_path / "chat_template.jinja").write_text("file")
    with pytest.warns(UserWarning, match="chat_template of tokenizer_config.json is not that of chat_template.jinja"):
        assert configured(tmp_path, config).fields["chat_template"] == "file"
    assert configured(tmp_path, config | {"chat_template": "file"}).fields["chat_template"] == "file"


def test_tokens_of_roles_are_not_split(tmp_path):
    tokenizer = configured(tmp_path, {"mask_token": "[MASK]"})
    assert tokenizer.encode("a[MASK]b", add_special_tokens=False).tokens == ["a", "[MASK]", "b"]


def test_contradictions_are_named_with_both_files(tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer_config.json: eos_token='<end>' is no token"):
        configured(tmp_path, {"eos_token": "<end>"})
    with pytest.raises(ValueError, match=r"tokenizer.json puts </s> before a text.*has bos_token=<s>"):
        configured(tmp_path, {"bos_token": "<s>", "eos_token": "</s>"}, word_tokenizer("</s>"))


def test_a_run_folder_keeps_the_roles(tmp_path):
    tokenizer = configured(tmp_path, {"eos_token": "<|im_end|>", "chat_template": "{{ messages }}"})
    (tmp_path / "kept").mkdir()
    paths = [tmp_path / "kept" / name for name in TOKENIZER.files]
    for name, text in TOKENIZER.contents(tokenizer).items():
        (tmp_path / "kept" / name).write_text(text)
    kept = TOKENIZER.read(*paths)
    assert roles(kept) == roles(tokenizer)
    assert kept.fields["chat_template"] == "{{ messages }}"
    assert set(TOKENIZER.to_texts(word_tokenizer())[1:]) == {""}  # nothing is written beside a tokenizer without one


def test_a_new_run_takes_the_roles_of_the_folder_of_its_tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").write_text(word_tokenizer().to_str())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "pad_token": "<pad>"}))
    tokenizer = tokenize.load(schema.Tokenizer(path=str(tmp_path)), [], Log())
    assert special.special_tokens(tokenizer).sep == WORDS.index("<|im_end|>")
    assert tokenizer.id_to_token(special.special_tokens(tokenizer).cls) == "[CLS]"  # added: the file has none


def test_a_tokenizer_without_an_end_is_said():
    """Token 0 stands between documents then."""
    nameless = special.ConfiguredTokenizer(word_tokenizer(), {"unk_token": "<unk>"})
    assert special.document_marks(nameless).last == 0
    assert "no eos_token, sep_token or pad_token: token 0, '<unk>'" in special.made_up_mark(nameless)
    assert not special.made_up_mark(special.ConfiguredTokenizer(word_tokenizer(), {"eos_token": "</s>"}))


def test_rows_behind_the_last_token_are_never_written():
    """WORDS has 9 tokens: of a table of 12 rows, 3 are no tokens."""
    model = tfm.Config(layers=1, heads=1, width=8, vocab=12)
    assert tokenize.writing_model(model, word_tokenizer()).outputs == 9
    assert tokenize.writing_model(model, word_tokenizer()).padded_vocab == model.padded_vocab
    assert tokenize.writing_model(dataclasses.replace(model, vocab=9), word_tokenizer()).outputs == 9
    gaps = Tokenizer(models.WordLevel({"a": 0, "b": 11}, unk_token="a"))
    assert tokenize.writing_model(model, gaps) == model, "the last token is the last row"
