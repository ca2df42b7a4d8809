"""Fields of tokenizer_config.json that few folders have, and that change what a model reads."""

import dataclasses
import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from random_params import random_params
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

import tfm
from tfm.config.model import Config
from tfm.config.positions import Rotary
from train.data.tokens import in_memory
from train.lab.embedding import embed
from train.lab.embedding.folder import say_padding
from train.tasks.classify.rows import Examples
from train.text import hf_tokenizer, pair_types, sentence_transformers

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e", "<x>"]
MODEL = Config(vocab=len(WORDS), layers=1, width=8, heads=2, ffn=8, length=16)
FIELDS = {"tokenizer_class": "BertTokenizer", "unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
FIELDS |= {"sep_token": "[SEP]", "mask_token": "[MASK]"}


def words(kind=1):
    """A tokenizer of WORDS; the second text of a pair has the type `kind`."""
    tokenizer = Tokenizer(models.WordPiece({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=f"[CLS] $A [SEP] $B:{kind} [SEP]:{kind}",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )  # fmt: skip
    tokenizer.add_special_tokens([AddedToken("<x>")])
    return tokenizer


def folder(path, tokenizer, **fields):
    """A folder of a tokenizer, of a model with two types."""
    fields = {name: value for name, value in (FIELDS | fields).items() if value is not None}
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(fields))
    (path / "config.json").write_text(json.dumps({"model_type": "bert", "type_vocab_size": 2}))
    return path


def read(path):
    """The tokenizer of a folder, and what is said of it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tokenizer = hf_tokenizer.read(path, MODEL)
    return tokenizer, " ".join(str(warning.message) for warning in caught)


@pytest.mark.parametrize(
    ("fields", "kind", "expected", "said"),
    [
        ({}, 1, 1, ""),
        ({}, 0, 0, ""),
        ({"model_input_names": ["input_ids", "attention_mask"]}, 1, 0, ""),
        ({"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}, 0, 0, ""),
        ({"tokenizer_class": "TokenizersBackend"}, 1, 0, ""),  # of transformers 5, whose default has no types
        ({"tokenizer_class": "BigBirdTokenizer", "model_input_names": ["input_ids", "token_type_ids"]}, 1, 1, ""),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, 1, 1, "said"),
    ],
)
def test_types_of_pairs(tmp_path, fields, kind, expected, said):
    """The field, else the class; what the tokenizer itself makes of a pair."""
    tokenizer, sentences = read(folder(tmp_path, words(kind), **fields))
    assert pair_types.second_type(tokenizer) == expected
    assert ("model_input_names" in sentences) == bool(said)
    rows = Examples([in_memory(tokenizer, [text]) for text in ("a b", "c")], np.zeros(1), 8, tokenizer)
    assert rows.batch(np.array([0]))["types"].tolist() == [[0, 0, 0, 0, expected, expected, 0, 0]]


def test_a_field_of_inputs_that_is_no_list(tmp_path):
    with pytest.raises(Exception, match="model_input_names='input_ids' must be"):
        read(folder(tmp_path, words(), model_input_names="input_ids"))


@pytest.mark.parametrize(
    ("flags", "text", "expected"),
    [
        ({"lstrip": True, "special": True}, "a <x> b", [(0, 1), (1, 5), (6, 7)]),
        ({"lstrip": False, "special": True}, "a <x> b", [(0, 1), (2, 5), (6, 7)]),
        ({"single_word": True, "special": True}, "a<x>b", None),
    ],
)
def test_flags_of_added_tokens_decoder_count(tmp_path, flags, text, expected):
    """tokenizer.json has the same token with other flags; both versions of transformers take those of the field."""
    tokenizer, _ = read(folder(tmp_path, words(), added_tokens_decoder={"10": {"content": "<x>", **flags}}))
    encoding = tokenizer.encode(text, add_special_tokens=False)
    assert (encoding.offsets == expected) if expected else (10 not in encoding.ids)


def test_a_list_of_added_tokens_changes_no_flags(tmp_path):
    """added_tokens.json has texts and ids alone."""
    path = folder(tmp_path, words())
    (path / "added_tokens.json").write_text('{"<x>": 10}')
    assert read(path)[0].encode("a<x>b", add_special_tokens=False).ids == [5, 10, 6]


def test_sides(tmp_path):
    with pytest.raises(Exception, match="truncation_side=middle is unknown; known are left, right"):
        read(folder(tmp_path, words(), truncation_side="middle"))


@pytest.mark.slow
def test_the_beginning_of_a_text_is_cut(tmp_path):
    """As the library of sentences does for truncation_side=left; the vector is that of the rest alone."""
    params = random_params(tfm.masked_lm_specs(MODEL))
    tfm.to_hf(MODEL, params, tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    folder(tmp_path, words(), truncation_side="left")
    (tmp_path / "config.json").write_text(json.dumps(fields))
    sentence_transformers.save(tmp_path, MODEL.width, "mean", 4)
    cut, rest, beginning = embed(tmp_path, ["a b c d e", "d e", "a b"])
    np.testing.assert_allclose(cut, rest, atol=1e-6)
    assert np.abs(cut - beginning).max() > 1e-2


def test_padding_before_texts_is_said(tmp_path):
    """The library of sentences moves a text by its padding, so that its vector depends on its neighbours."""
    said: list[str] = []
    for side, model in (("right", MODEL), ("left", dataclasses.replace(MODEL, position=Rotary())), ("left", MODEL)):
        assert said == []
        tokenizer, _ = read(folder(tmp_path, words(), padding_side=side))
        say_padding("folder", tokenizer, model, SimpleNamespace(info=said.append))
    assert len(said) == 1
    assert "padding_side=left" in said[0]


def test_a_tokenizer_that_marks_no_texts(tmp_path):
    """Rows of a classifier have marks all the same, which is said."""
    from train.runs.hf_folder import HfFolder

    model = dataclasses.replace(MODEL, classes=2)
    tfm.to_hf(model, random_params(tfm.classifier_specs(model)), tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    for template, said in ((None, True), (words().post_processor, False)):
        tokenizer = words()
        tokenizer.post_processor = template or processors.TemplateProcessing(single="$A")
        folder(tmp_path, tokenizer)
        (tmp_path / "config.json").write_text(json.dumps(fields))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            HfFolder(tmp_path).processor  # noqa: B018
        sentences = " ".join(str(warning.message) for warning in caught)
        assert ("puts [] around a text, and this model reads texts between ['[CLS]', '[SEP]']" in sentences) == said
