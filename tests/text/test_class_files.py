"""How the files of a class are read where there is no tokenizer.json: each sentence once, and the ids."""

import json
import warnings

import pytest
from sentencepiece_files import model, piece
from tokenizer_folders import (
    BERT,
    BYTES,
    M2M_100,
    SIZES,
    SPACE,
    XLM_R,
    write,
)

from train.text import hf_tokenizer, tokenizer_classes

NEW = {"additional_special_tokens": ["<new>"]}
T5 = {"spiece.model": model(SPACE, f"{SPACE}a", "b")}
KIND_OF_PAIRS = {"sentencepiece.bpe.model": model(SPACE, f"{SPACE}a", "b", kind=2)}
OF_BYTES = model(SPACE, "a", "b", kind=2, further=b"".join(piece(byte, kind=6) for byte in BYTES))


@pytest.mark.parametrize(
    ("name", "files", "fields", "sentence"),
    [
        ("XLMRobertaTokenizer", {**XLM_R, "special_tokens_map.json": NEW}, {}, "leaves out such as <new>; here they"),
        ("XLMRobertaTokenizer", {**XLM_R, "special_tokens_map.json": NEW}, {"added_tokens_decoder": {}}, "leaves out"),
        (
            "XLMRobertaTokenizer",
            KIND_OF_PAIRS,
            {},
            "sentencepiece.bpe.model is a model of BPE, which .* one of Unigram",
        ),
        ("NllbTokenizer", XLM_R, {}, "is a model of Unigram, which .* as one of BPE for tokenizer_class=NllbTokenizer"),
        ("T5Tokenizer", T5, {**NEW, "extra_ids": 2}, "additional_special_tokens has no <extra_id_0>: there are 2, and"),
        (
            "T5Tokenizer",
            T5,
            {"unk_token": "b", "pad_token": "</s>"},
            "unk_token=b, and unknown characters are <unk> in",
        ),
        (
            "LlamaTokenizer",
            {"tokenizer.model": OF_BYTES},
            {},
            "legacy is true, by default too: a text behind a special",
        ),
        (
            "MBart50Tokenizer",
            XLM_R,
            {"cls_token": "<new>"},
            "cls_token=<new> is no token of sentencepiece.bpe.model: it",
        ),
        (
            "MBartTokenizer",
            XLM_R,
            {"mask_token": "b"},
            "mask_token=b stands where sentencepiece.bpe.model of the class",
        ),
        ("T5Tokenizer", T5, {"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs is not read: a text is"),
        (
            "M2M100Tokenizer",
            M2M_100,
            {"model_input_names": ["input_ids", "token_type_ids"]},
            "model_input_names has token_type_ids: that of a second text is 0, and in transformers 5 it is 1",
        ),
    ],
)
def test_what_transformers_makes_of_pieces_is_said(tmp_path, name, files, fields, sentence):
    with pytest.warns(UserWarning, match=sentence):
        tokenizer_classes.read(write(tmp_path, files, tokenizer_class=name, **fields))


def test_what_special_tokens_map_alone_has_is_kept_in_silence_where_transformers_keeps_it(tmp_path):
    files = {**XLM_R, "special_tokens_map.json": {"extra_special_tokens": ["<new>"]}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenizer = tokenizer_classes.read(write(tmp_path, files, tokenizer_class="XLMRobertaTokenizer"))
    assert tokenizer.encode("<new>", add_special_tokens=False).ids == [8]


def test_words_beside_tokens_of_added_tokens_json_begin_with_a_space(tmp_path):
    """Also where the token is text, which the normalizer sees: <new>b is <new> and the word b, as in transformers."""
    path = write(tmp_path, {**XLM_R, "added_tokens.json": {"<new>": 8}}, tokenizer_class="XLMRobertaTokenizer")
    tokenizer = tokenizer_classes.read(path)
    assert tokenizer.encode("a<new>b <new> <new>", add_special_tokens=False).ids == [5, 8, 4, 6, 8, 8]
    assert tokenizer.decode([5, 8, 4, 6]) == "a<new> b"


def test_a_folder_of_pieces_with_a_generic_class_has_the_roles_of_its_model(tmp_path):
    path = write(
        tmp_path, {"tokenizer.model": OF_BYTES}, "llama", tokenizer_class="PreTrainedTokenizerFast", legacy=False
    )
    tokenizer = hf_tokenizer.read(path, SIZES)
    assert {role: tokenizer.ids.get(role) for role in ("unk", "bos", "eos")} == {"unk": 0, "bos": 1, "eos": 2}
    assert "padding_side" not in tokenizer.fields


@pytest.mark.parametrize(("file", "is_special"), [("tokenizer_config.json", True), ("special_tokens_map.json", False)])
def test_a_token_of_added_tokens_json_is_special_where_transformers_has_it_so(tmp_path, file, is_special):
    """Of special_tokens_map.json, only its extra_special_tokens make such a token special there."""
    files = {**XLM_R, "added_tokens.json": {"<new>": 8}}
    path = write(tmp_path, files, tokenizer_class="XLMRobertaTokenizer")
    fields = json.loads((path / file).read_text()) if (path / file).exists() else {}
    (path / file).write_text(json.dumps(fields | NEW))
    assert tokenizer_classes.read(path).get_added_tokens_decoder()[8].special == is_special


PAIRS = {"vocab.json": {"a": 0, "\u0120": 1, "\u0120a": 2, "<x>": 3}, "merges.txt": "#version: 0.2\n\u0120 a\n"}
FLAGS = {"__type": "AddedToken", "content": "<x>", "lstrip": True, "rstrip": True, "normalized": False}


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({"eos_token": "<x>", "unk_token": FLAGS, "pad_token": "<x>"}, [0, 3, 0]),
        ({"bos_token": FLAGS, "eos_token": "<x>"}, [0, 1, 3, 2]),
        ({"eos_token": "<x>", "pad_token": "<x>"}, [0, 1, 3, 2]),
    ],
)
def test_of_fields_with_one_token_the_last_new_flags_count(tmp_path, fields, ids):
    path = write(tmp_path, PAIRS, tokenizer_class="GPT2Tokenizer", **{"unk_token": "<x>", "bos_token": "<x>"} | fields)
    assert tokenizer_classes.read(path).encode("a <x> a").ids == ids


@pytest.mark.parametrize(
    ("files", "name", "sentence"),
    [
        (
            {"merges.txt": "#version: 0.2\n\u0120 a\na b\n"},
            "GPT2Tokenizer",
            "line 3 of merges.txt merges a and b, .* no b",
        ),
        ({"merges.txt": "\u0120 a\na a\n"}, "GPT2Tokenizer", "line 2 of merges.txt merges a and a, .* no aa; they are"),
        ({"merges.txt": "a\n"}, "GPT2Tokenizer", "line 1 of merges.txt has 1 parts, and a merge has two"),
        ({"vocab.json": {"a": "x"}}, "GPT2Tokenizer", "vocab.json"),
        ({}, "RobertaTokenizer", "has no </s>, <s>, which tokenizer_class=RobertaTokenizer puts around texts"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(tmp_path, files, name, sentence):
    path = write(tmp_path, PAIRS | files, tokenizer_class=name, unk_token="a", pad_token="a", mask_token="a")
    with pytest.raises(ValueError, match=sentence):
        tokenizer_classes.read(path)


def test_a_mark_of_the_byte_order_is_said(tmp_path):
    words = "\ufeff" + "\n".join(BERT) + "\n"
    with pytest.warns(UserWarning, match=r"vocab.txt begins with a byte order mark, which is left out"):
        tokenizer = tokenizer_classes.read(write(tmp_path, {"vocab.txt": words}, tokenizer_class="BertTokenizer"))
    assert tokenizer.token_to_id("[PAD]") == 0


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"src_lang": "de_DE"}, "vocab.json has no __de_DE__, .* puts around texts; correct src_lang"),
        ({"unk_token": "<new>"}, "vocab.json has no unk_token=<new>, for unknown characters; add it"),
    ],
)
def test_tokens_that_m2m_100_lacks(tmp_path, fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        tokenizer_classes.read(write(tmp_path, M2M_100, tokenizer_class="M2M100Tokenizer", **fields))


def test_a_piece_that_is_null(tmp_path):
    with pytest.raises(ValueError, match="bos_token is null, and a piece of the vocabulary; remove the field"):
        tokenizer_classes.read(write(tmp_path, XLM_R, tokenizer_class="MBartTokenizer", bos_token=None))


def test_tokens_of_nllb_without_numbers_are_said(tmp_path):
    with pytest.warns(UserWarning, match="added_tokens_decoder has no ace_Arab: the mask is behind the languages"):
        tokenizer_classes.read(write(tmp_path, KIND_OF_PAIRS, tokenizer_class="NllbTokenizer"))


def test_tokens_of_two_files(tmp_path):
    files = {**XLM_R, "added_tokens.json": {"<new>": 8}}
    path = write(tmp_path, files, tokenizer_class="XLMRobertaTokenizer", added_tokens_decoder={})
    with pytest.warns(UserWarning, match="added_tokens_decoder has no <new> of added_tokens.json"):
        tokenizer_classes.read(path)
    numbered = {"0": {"content": "<s>", "special": True}}
    path = write(tmp_path, XLM_R, tokenizer_class="XLMRobertaTokenizer", bos_token="b", added_tokens_decoder=numbered)
    (path / "added_tokens.json").unlink()
    with pytest.raises(
        ValueError, match=r"'<s>' is token 0 in .* \(bos_token=b, tokenizer_class=XLMRobertaTokenizer\)"
    ):
        tokenizer_classes.read(path)


def test_a_model_without_a_configuration_has_the_tokens_of_its_class_alone(tmp_path):
    """</s> is text for GPT-2, whose documents end in another token."""
    vocab = {"<|endoftext|>": 0, "</s>": 1, "a": 2}
    path = write(tmp_path, {"vocab.json": vocab, "merges.txt": "#version: 0.2\n"}, "gpt2")
    (path / "tokenizer_config.json").unlink()
    tokenizer = hf_tokenizer.read(path, SIZES)
    assert "sep" not in tokenizer.ids
    assert tokenizer.ids["eos"] == 0
