"""Tokenizers of folders without tokenizer.json: ids by hand, and what is refused."""

import json
import warnings

import pytest
from sentencepiece_files import model
from tokenizers import Tokenizer, models, pre_tokenizers

from tfm.config.model import Config
from train import UserError
from train.screens.console import Log
from train.settings import schema
from train.text import hf_tokenizer, tokenize, tokenizer_classes, tokenizer_kinds

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat möchte mochte 東京 東 京 ##s".split()
PAIRS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "Ġ": 6, "Ġa": 7, "ab": 8, "<mask>": 9}


def folder(path, files=(), model_type="bert", **options):
    """A folder of these files; a text is written as it is, and anything else as JSON."""
    contents = {"config.json": {"model_type": model_type}, "tokenizer_config.json": options, **dict(files)}
    for name, content in contents.items():
        (path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def bert(path, files=(), **options):
    return folder(path, {"vocab.txt": "\n".join(WORDS) + "\n", **dict(files)}, **options)


def ids(path, text):
    return tokenizer_classes.read(path).encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [5, 8, 10, 11]),
        ({"do_lower_case": False}, [1, 7, 10, 11]),
        ({"do_lower_case": False, "strip_accents": True}, [1, 8, 10, 11]),
        ({"strip_accents": False}, [5, 7, 10, 11]),
        ({"tokenize_chinese_chars": False}, [5, 8, 9]),
    ],
)
def test_how_bert_prepares_a_text(tmp_path, options, expected):
    assert ids(bert(tmp_path, **options), "The möchte 東京") == expected


def test_special_tokens_are_whole_and_around_texts(tmp_path):
    tokenizer = tokenizer_classes.read(bert(tmp_path))
    assert tokenizer.encode("cat [MASK]", "the").tokens == ["[CLS]", "cat", "[MASK]", "[SEP]", "the", "[SEP]"]
    assert tokenizer.encode("cat", "the").type_ids == [0, 0, 0, 1, 1]


def test_tokens_beside_a_vocabulary(tmp_path):
    options = {"added_tokens_decoder": {"13": {"content": "<new>", "special": False}}, "mask_token": "[M]"}
    path = bert(tmp_path, {"special_tokens_map.json": {"additional_special_tokens": ["[OWN]"]}}, **options)
    assert ids(path, "cats<new>[OWN] [M]") == [6, 12, 13, 15, 14], "fields come before tokens without one"
    (tmp_path / "added_tokens.json").write_text('{"<new>": 13}')
    assert ids(path, "<new>") == [13], "said twice, and equal"


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        (
            {"added_tokens.json": {"<new>": 99}},
            {},
            "'<new>' is token 99 in added_tokens_decoder or added_tokens.json and 13 in its",
        ),
        (
            {"added_tokens.json": {"<new>": 14}},
            {"added_tokens_decoder": {"13": {"content": "<new>"}}},
            "'<new>' is 13 in tokenizer_config.json and 14 in added_tokens.json",
        ),
        (
            {"special_tokens_map.json": {"mask_token": "<mask>"}},
            {"mask_token": "[MASK]"},
            r"mask_token is '\[MASK\]' in tokenizer_config.json and '<mask>' in special_tokens_map.json",
        ),
        ({}, {"cls_token": "<cls>", "sep_token": None, "do_basic_tokenize": False}, "do_basic_tokenize=false"),
        ({}, {"never_split": ["iPhone"]}, r"never_split=\['iPhone'\] is not supported"),
        ({}, {"tokenizer_class": "BertJapaneseTokenizer"}, "tokenizer_class=BertJapaneseTokenizer is not read"),
        (
            {},
            {"tokenizer_class": "RobertaTokenizer"},
            "nor vocab.json, merges.txt, which tokenizer_class=RobertaTokenizer reads",
        ),
        ({}, {"do_lower_case": "yes"}, "do_lower_case='yes' must be true or false"),
        ({}, {"added_tokens_decoder": {"x": {"content": "a"}}}, "the key 'x', where an id must stand"),
    ],
)
def test_what_is_refused(tmp_path, files, options, message):
    path = bert(tmp_path, files, **options)
    with pytest.raises(UserError, match=message):
        hf_tokenizer.read(path, Config(vocab=128))


def test_the_class_of_config_json_counts_and_generic_names_say_nothing(tmp_path):
    path = bert(tmp_path, {"config.json": {"model_type": "bert", "tokenizer_class": "PhobertTokenizer"}})
    with pytest.raises(ValueError, match="PhobertTokenizer"):
        tokenizer_classes.read(path)
    assert ids(bert(tmp_path, tokenizer_class="PreTrainedTokenizerFast"), "cat") == [6]
    with pytest.raises(ValueError, match="names no tokenizer_class"):
        tokenizer_classes.read(bert(tmp_path, model_type="new"))


def pairs(path, **options):
    merges = "#version: 0.2\nĠ a\na b\n"
    return folder(path, {"vocab.json": PAIRS, "merges.txt": merges}, "roberta", **options)


def test_pairs_of_bytes(tmp_path):
    assert ids(pairs(tmp_path), "ab ab") == [8, 7, 5]
    tokenizer = tokenizer_classes.read(pairs(tmp_path, add_prefix_space=True))
    assert tokenizer.encode("ab", "a").tokens == ["<s>", "Ġa", "b", "</s>", "</s>", "Ġa", "</s>"]
    assert tokenizer.encode("a <mask> a", add_special_tokens=False).ids == [7, 9, 7], "the mask takes its space"
    options = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "bos_token": "</s>", "unk_token": "<unk>"}
    assert tokenizer_classes.read(pairs(tmp_path, **options)).encode("a", "b").ids == [2, 4, 2, 5]


def test_a_folder_as_path_is_read_as_its_files_say(tmp_path):
    options = schema.Tokenizer(path=str(bert(tmp_path, strip_accents=False, additional_special_tokens=["[OWN]"])))
    tokenizer = tokenize.load(options, [], Log(quiet=True))
    assert tokenizer.encode("The möchte[OWN]", add_special_tokens=False).ids == [5, 7, 13]
    bert(tmp_path, tokenizer_class="PhobertTokenizer")
    with pytest.raises(UserError, match=f"--tokenizer.path={tmp_path} cannot be read .* tokenizer_class=PhobertTok"):
        tokenize.load(options, [], Log(quiet=True))


def test_two_files_that_contradict_each_other(tmp_path):
    """tokenizer.json has the tokens of the other files too, and prepares texts as they say."""
    tokenizer = tokenizer_classes.read(bert(tmp_path))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    model = Config(vocab=128)
    bert(tmp_path, additional_special_tokens=["[OWN]"], do_lower_case=True)
    assert hf_tokenizer.read(tmp_path, model).encode("[OWN]", add_special_tokens=False).ids == [13]
    bert(tmp_path, strip_accents=True)
    hf_tokenizer.read(tmp_path, model)  # as lower-casing does
    bert(tmp_path, strip_accents=False)
    with pytest.raises(UserError, match="strip_accents is false in tokenizer_config.json and true in tokenizer.json"):
        hf_tokenizer.read(tmp_path, model)


def test_fairseq_numbers_pieces_anew(tmp_path):
    path = folder(tmp_path, model_type="xlm-roberta")
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model("▁", "▁a", "b"))
    tokenizer = tokenizer_classes.read(path)
    assert tokenizer.encode("ab a", "a").ids == [0, 5, 6, 5, 2, 2, 5, 2]
    assert tokenizer.encode("a x <mask>", add_special_tokens=False).ids == [5, 4, 3, 7]
    assert tokenizer.decode([0, 5, 6, 5, 2]) == "ab a"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"split_special_tokens": True}, "split_special_tokens=true is not supported without tokenizer.json"),
        ({"unk_token": None}, "unk_token is null, and sentencepiece.bpe.model has <unk>; remove the field"),
        ({"add_prefix_space": None}, "add_prefix_space=false, and words of sentencepiece.bpe.model begin"),
    ],
)
def test_fields_that_pieces_contradict(tmp_path, fields, sentence):
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model("\u2581", "\u2581a", "b"))
    with pytest.raises(ValueError, match=sentence):
        tokenizer_classes.read(folder(tmp_path, model_type="xlm-roberta", **fields))


def test_marks_of_texts_that_are_not_read_are_said(tmp_path):
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model("\u2581", "\u2581a", "b"))
    with pytest.warns(UserWarning, match="add_eos_token is not read"):
        tokenizer_classes.read(folder(tmp_path, model_type="xlm-roberta", add_eos_token=False))


def test_a_pair_of_models_shares_the_ids_of_vocab_json(tmp_path):
    """A piece of the other language is unknown in a text, and both languages can be written."""
    tokens = ["</s>", "<unk>", "▁", "▁a", "b", ">>de<<", "▁ein", "x", "<pad>"]
    vocab = {token: index for index, token in enumerate(tokens)}
    path = folder(tmp_path, {"vocab.json": vocab}, "marian")
    (tmp_path / "source.spm").write_bytes(model("▁", "▁a", "b"))
    (tmp_path / "target.spm").write_bytes(model("▁", "▁ein", "x"))
    tokenizer = hf_tokenizer.read(path, Config(vocab=128))
    assert tokenizer.encode(">>de<< ab x").ids == [5, 3, 4, 2, 1, 0]
    for text in (">>fr<< ab", ">>fr<<ab", ">> a\nb << ab"):
        assert tokenizer.encode(text).ids == [1, 3, 4, 0], "another language is unknown"
    assert tokenizer.encode(">>fr<<").ids == [1, 0]
    assert tokenizer.encode("ab >>").ids == [3, 4, 2, 1, 0]
    for text in ("ab >>de<<", "ab >>x<<"):
        assert tokenizer.encode(text).ids == [3, 4, 2, 1, 0], "it is text but at the beginning"
    assert tokenizer.decode([5, 3, 4, 0]) == ">>de<< ab"
    assert tokenizer.target.encode("ein ein b").ids == [6, 6, 2, 1, 0]
    assert tokenizer.decode([6, 7, 3, 4, 0]) == "einx ab"
    numbered = {token: index for index, token in enumerate(token for token in tokens if token != "b")}
    with pytest.warns(UserWarning, match="1 of 3 pieces of source.spm have no id in vocab.json, such as 'b'"):
        tokenizer_classes.read(folder(tmp_path, {"vocab.json": numbered}, "marian"))
    with pytest.raises(UserError, match="vocab.json does not number its 2 tokens from 0 to 1"):
        hf_tokenizer.read(folder(tmp_path, {"vocab.json": {"<unk>": 0, "a": 7}}, "marian"), Config(vocab=128))
    with pytest.raises(UserError, match=">>de<< is named among added tokens"):
        hf_tokenizer.read(
            folder(tmp_path, {"vocab.json": vocab}, "marian", additional_special_tokens=[">>de<<"]), Config(vocab=128)
        )
    with pytest.raises(UserError, match="separate_vocabs=true is not supported"):
        hf_tokenizer.read(folder(tmp_path, {"vocab.json": vocab}, "marian", separate_vocabs=True), Config(vocab=128))


def test_llama_without_bytes_is_refused(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(model("▁", "▁a"))
    with pytest.raises(ValueError, match="no tokens of bytes"):
        tokenizer_classes.read(folder(tmp_path, model_type="llama"))


def unigram(folder, unk_id=1, scheme="always", **options):
    """A folder of XLM-R's class with tokenizer.json."""
    model = models.Unigram([("<s>", 0.0), ("<unk>", -1.0), ("\u2581a", -2.0), ("\u2581", -3.0)], unk_id)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("\u2581", scheme)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    fields = {"tokenizer_class": "XLMRobertaTokenizer", "unk_token": "<unk>", **options}
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))
    return folder


class Sizes:
    vocab = 100


@pytest.mark.parametrize(
    ("changes", "options", "sentence"),
    [
        ({"unk_id": 0}, {}, "reads an unknown character as <s>, and tokenizer_config.json has unk_token=<unk>"),
        ({"unk_id": None}, {}, "tokenizer.json has no token for what it does not know"),
        (
            {"scheme": "never"},
            {"add_prefix_space": True},
            "add_prefix_space is true in tokenizer_config.json and false",
        ),
        ({}, {"add_prefix_space": False}, "add_prefix_space is false in tokenizer_config.json and true"),
        ({}, {"add_prefix_space": None}, "add_prefix_space is null in tokenizer_config.json and true"),
        ({}, {"unk_token": None}, "unknown character as <unk>, and tokenizer_config.json has unk_token=null"),
        (
            {},
            {"additional_special_tokens": ["<x>"], "extra_special_tokens": ["<y>"]},
            "additional_special_tokens and extra_special_tokens of .* differ",
        ),
    ],
)
def test_what_tokenizer_json_contradicts(tmp_path, changes, options, sentence):
    hf_tokenizer.read(unigram(tmp_path), Sizes)
    with pytest.raises((ValueError, UserError), match=sentence):
        hf_tokenizer.read(unigram(tmp_path, **changes, **options), Sizes)


def test_a_tokenizer_that_cuts_no_words_is_said(tmp_path):
    path = unigram(tmp_path) / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pre_tokenizer": None}))
    with pytest.warns(
        UserWarning, match=r"XLMRobertaTokenizer cuts 'a  b' into .*, and tokenizer.json into \['a  b'\]"
    ):
        hf_tokenizer.read(tmp_path, Sizes)


def test_digits_that_a_class_does_not_cut_are_said(tmp_path):
    """As in folders of GPT-2's class whose numbers are read digit by digit."""
    tokenizer_classes.read(pairs(tmp_path)).save(str(tmp_path / "tokenizer.json"))
    options = {"tokenizer_class": "RobertaTokenizer"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hf_tokenizer.read(pairs(tmp_path, **options), Config(vocab=128))
    steps = [{"type": "Digits", "individual_digits": True}, json.loads((tmp_path / "tokenizer.json").read_text())]
    steps[1] = steps[1]["pre_tokenizer"]
    with_fields(tmp_path, pre_tokenizer={"type": "Sequence", "pretokenizers": steps})
    with pytest.warns(UserWarning, match=r"cuts \"a 12's\" into \['a', 'Ġ12', \"'s\"\], and tokenizer.json into"):
        hf_tokenizer.read(tmp_path, Config(vocab=128))


def with_fields(folder, **fields):
    """Other fields in tokenizer.json."""
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}}, "cuts 'a  b'"),
        ({"decoder": None}, r"writes \['\u2581a', '\u2581ab'\] as 'a ab', and tokenizer.json as '\u2581a \u2581ab'"),
    ],
)
def test_what_a_class_does_otherwise_is_said(tmp_path, fields, sentence):
    path = unigram(tmp_path)
    model = json.loads((path / "tokenizer.json").read_text())["model"]
    model["vocab"].append(["\u2581ab", -4.0])
    frame = {"type": "TemplateProcessing", "pair": [{"Sequence": {"id": "A", "type_id": 0}}]}
    ends = [{"SpecialToken": {"id": token, "type_id": 0}} for token in ("<s>", "</s>")]
    frame |= {"single": [ends[0], {"Sequence": {"id": "A", "type_id": 0}}, ends[1]]}
    frame |= {"special_tokens": {token: {"id": token, "ids": [0], "tokens": [token]} for token in ("<s>", "</s>")}}
    decoder = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    with_fields(path, model=model, post_processor=frame, decoder=decoder)
    fields_of_config = {"tokenizer_class": "XLMRobertaTokenizer", "unk_token": "<unk>", "eos_token": "<s>"}
    (path / "tokenizer_config.json").write_text(json.dumps(fields_of_config))
    with pytest.warns(UserWarning, match=sentence):
        hf_tokenizer.read(with_fields(path, **fields), Sizes)


def test_a_frame_without_the_text_is_refused(tmp_path):
    ends = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}], "pair": []}
    ends |= {"special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}
    with pytest.raises(UserError, match="post_processor of tokenizer.json drops the text itself"):
        hf_tokenizer.read(with_fields(unigram(tmp_path), post_processor=ends), Sizes)


def test_padding_of_tokenizer_json_counts_where_no_field_says_it(tmp_path):
    padding = {
        "strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": None, "pad_id": 3, "pad_type_id": 0,
        "pad_token": "\u2581",
    }  # fmt: skip
    tokenizer = hf_tokenizer.read(with_fields(unigram(tmp_path), padding=padding), Sizes)
    assert (tokenizer.ids["pad"], tokenizer.fields["padding_side"]) == (3, "left")
    tokenizer = hf_tokenizer.read(with_fields(unigram(tmp_path, pad_token="<s>"), padding=padding), Sizes)
    assert tokenizer.ids["pad"] == 0


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"version": 5}, "correct version of tokenizer.json"),
        ({"pre_tokenizer": {"type": "x"}}, "correct pre_tokenizer of tokenizer.json"),
        ({"added_tokens": None}, "correct added_tokens of tokenizer.json"),
        ({"my_field": 1}, "correct my_field of tokenizer.json"),
    ],
)
def test_a_field_that_the_library_refuses_is_named(tmp_path, fields, sentence):
    with pytest.raises(UserError, match=sentence):
        hf_tokenizer.read(with_fields(unigram(tmp_path), **fields), Sizes)


def test_a_field_of_the_model_that_the_library_refuses_is_named(tmp_path):
    path = unigram(tmp_path)
    model = json.loads((path / "tokenizer.json").read_text())["model"]
    for field, value in (("byte_fallback", "x"), ("unk_id", 100), ("vocab", [["a", "x"]])):
        with pytest.raises(UserError, match=rf"correct model.{field} of tokenizer.json"):
            hf_tokenizer.read(with_fields(path, model=model | {field: value}), Sizes)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"normalizer": None}, "has a normalizer of BertNormalizer, and tokenizer.json none"),
        ({"normalizer": {"type": "Lowercase"}}, "has a normalizer of BertNormalizer, and tokenizer.json Lowercase"),
        ({"clean_text": False}, "has clean_text=true, and the normalizer of tokenizer.json false"),
        ({"strip_accents": False}, "has a normalizer with strip_accents=null, and tokenizer.json false"),
        ({"max_input_chars_per_word": 3}, "has max_input_chars_per_word=100, and tokenizer.json 3"),
        ({"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False}}, "has cleanup=true, and the decoder"),
    ],
)
def test_what_bert_does_otherwise_is_said(tmp_path, fields, sentence):
    vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5}
    (tmp_path / "vocab.txt").write_text("\n".join(vocab) + "\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    tokenizer_classes.read(tmp_path).save(str(tmp_path / "tokenizer.json"))
    saved = json.loads((tmp_path / "tokenizer.json").read_text())
    for part in ("normalizer", "model"):
        if own := {name: value for name, value in fields.items() if name in saved[part]}:
            fields = {part: saved[part] | own}
    with_fields(tmp_path, **fields)
    with pytest.warns(UserWarning, match=sentence):
        hf_tokenizer.read(tmp_path, Sizes)


def test_the_side_on_which_tokenizer_json_cuts_counts(tmp_path):
    cuts = {"direction": "Left", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    assert hf_tokenizer.read(with_fields(unigram(tmp_path), truncation=cuts), Sizes).fields["truncation_side"] == "left"


def test_tokens_of_further_fields_are_special(tmp_path):
    for fields in ({"image_token": "aa"}, {"model_specific_special_tokens": {"image_token": "aa"}}):
        tokenizer = hf_tokenizer.read(unigram(tmp_path, **fields), Sizes)
        assert tokenizer.decode(tokenizer.encode("aa").ids) == ""


def test_an_empty_special_token_is_said(tmp_path):
    with pytest.warns(UserWarning, match="sep_token is empty, where transformers takes unk_token"):
        hf_tokenizer.read(unigram(tmp_path, sep_token=""), Sizes)


def test_tokens_of_roles_are_special_whatever_tokenizer_json_says(tmp_path):
    token = {"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    path = with_fields(unigram(tmp_path, bos_token="<s>"), added_tokens=[token | {"special": False}])
    assert hf_tokenizer.read(path, Sizes).decode([0, 2]) == hf_tokenizer.read(path, Sizes).decode([2])


@pytest.mark.parametrize(("kind", "cleans"), [("Unigram", True), ("BPE", False)])
def test_spaces_before_marks_are_left_out_where_the_folder_says_so(tmp_path, kind, cleans):
    path = unigram(tmp_path, clean_up_tokenization_spaces=True)
    pieces = ["<s>", "<unk>", "a", "\u2581."]
    model = {"type": "Unigram", "unk_id": 1, "vocab": [[piece, -1.0] for piece in pieces]}
    if kind == "BPE":
        model = {
            "type": "BPE",
            "unk_token": "<unk>",
            "vocab": {piece: n for n, piece in enumerate(pieces)},
            "merges": [],
        }
    decoder = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": True}
    tokenizer = hf_tokenizer.read(with_fields(path, model=model, decoder=decoder), Sizes)
    assert tokenizer.decode([2, 3]) == ("a." if cleans else "a .")


def test_an_ending_that_no_token_has(tmp_path):
    pairs = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [], "end_of_word_suffix": "</w>"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": pairs}))
    with pytest.raises(ValueError, match="has end_of_word_suffix=</w>, with which no token ends"):
        tokenizer_kinds.read_own(tmp_path / "tokenizer.json")
