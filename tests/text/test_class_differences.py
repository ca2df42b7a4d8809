"""What a class of transformers does otherwise than a tokenizer.json: each sentence once."""

import json
import warnings

import pytest
from tokenizer_folders import (
    SIZES,
    SPACE,
    bert,
    llama,
    nllb,
    of_llama,
    spaced,
    write,
)
from tokenizers import decoders, normalizers, pre_tokenizers, processors

from train import UserError
from train.text import hf_tokenizer, tokenizer_classes, tokenizer_kinds


@pytest.mark.parametrize(
    ("parts", "fields", "sentence"),
    [
        ({"normalizer": normalizers.Strip()}, {}, r"reads '  a' as \['▁▁a'\], and tokenizer.json as \['▁a'\]"),
        ({"normalizer": normalizers.Strip(left=False)}, {}, r"reads 'a b ' as \['▁a▁b▁'\], and tokenizer.json as"),
        ({"normalizer": normalizers.Prepend(SPACE)}, {}, r"reads '  a' as \['▁▁a'\], and tokenizer.json as \['▁▁▁a'\]"),
        ({"normalizer": normalizers.NFC()}, {}, "has no normalizer of NFC, as tokenizer.json has"),
        (
            {"pre_tokenizer": pre_tokenizers.Metaspace(SPACE, "always", split=False)},
            {},
            "with legacy=false puts no space behind special tokens, and tokenizer.json does otherwise",
        ),
        ({}, {"legacy": True}, "with legacy=true puts a space behind special tokens"),
        ({"model": {"byte_fallback": False}}, {}, "reads unknown characters as bytes, and tokenizer.json does not"),
        (
            {"decoder": decoders.Metaspace(SPACE, "first")},
            {},
            r"writes the bytes of 'é' as that, and tokenizer.json as '<0xC3><0xA9>'",
        ),
        ({"pre_tokenizer": pre_tokenizers.Metaspace(SPACE, "first")}, {}, r"cuts 'a b' into \['a▁b'\]"),
        (
            {},
            {"added_tokens_decoder": {"2": {"content": "</s>"}}, "bos_token": None},
            "has no <s> of tokenizer.json in",
        ),
        ({}, {"init_inputs": ["x"]}, "init_inputs is not read; transformers takes it for arguments"),
        ({}, {"tokenizer_class": "BertTokenizer"}, "has a vocabulary of WordPiece, and tokenizer.json one of BPE"),
        ({}, {"tokenizer_class": "WhisperTokenizer"}, r"cuts 'a b' into \['a', 'Ġb'\], and tokenizer.json into"),
        ({}, {"tokenizer_class": "XGLMTokenizer"}, "has a vocabulary of Unigram, and tokenizer.json one of BPE"),
    ],
)
def test_what_a_class_does_otherwise_is_said(tmp_path, parts, fields, sentence):
    with pytest.warns(UserWarning, match=sentence):
        hf_tokenizer.read(of_llama(tmp_path, llama(**parts), **fields), SIZES)


@pytest.mark.parametrize(
    ("model_type", "fields", "parts"),
    [
        ("llama", {}, {}),
        ("llama", {"tokenizer_class": "LlamaTokenizerFast"}, {"pre_tokenizer": pre_tokenizers.ByteLevel()}),
        ("llama", {"tokenizer_class": "PreTrainedTokenizerFast"}, {"normalizer": normalizers.NFC()}),
        ("mistral", {}, {"normalizer": normalizers.NFC()}),
    ],
)
def test_nothing_is_said_where_the_file_is_followed(tmp_path, model_type, fields, parts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = of_llama(tmp_path, llama(**parts), **fields)
        (path / "config.json").write_text(json.dumps({"model_type": model_type}))
        hf_tokenizer.read(path, SIZES)


@pytest.mark.parametrize(
    ("model_type", "fields", "parts", "side"),
    [
        ("llama", {}, {}, "left"),
        ("llama", {"tokenizer_class": None}, {}, None),
        ("llama", {}, {"post_processor": processors.ByteLevel()}, None),
        ("mistral", {}, {}, None),
        ("gemma", {"tokenizer_class": None}, {}, "left"),
    ],
)
def test_the_side_of_padding_is_that_of_the_class(tmp_path, model_type, fields, parts, side):
    path = of_llama(tmp_path, llama(**parts), **fields)
    (path / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert hf_tokenizer.read(path, SIZES).fields.get("padding_side") == side


def test_the_class_of_a_model_counts_before_the_one_that_is_named(tmp_path):
    path = write(tmp_path, llama(), "qwen2", tokenizer_class="LlamaTokenizer", add_prefix_space=True)
    with pytest.warns(UserWarning, match=r"tokenizer_class=Qwen2Tokenizer cuts 'a b!' into"):
        hf_tokenizer.read(path, SIZES)
    (path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"nor vocab.json, merges.txt, which model_type=qwen2 reads"):
        hf_tokenizer.read(path, SIZES)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": {"continuing_subword_prefix": "@@"}}, 'has continuing_subword_prefix="##", and tokenizer.json "@@"'),
        (
            {"post_processor": {"pair": [{"Sequence": {"id": "A", "type_id": 0}}]}},
            r"puts \['\[CLS\]', '\[SEP\]', '\[SEP\]'\] around a pair, and tokenizer.json \[\]",
        ),
    ],
)
def test_what_bert_does_otherwise_is_said(tmp_path, changes, sentence):
    with pytest.warns(UserWarning, match=sentence):
        hf_tokenizer.read(bert(tmp_path, **changes), SIZES)


def test_a_special_token_of_the_class_that_is_absent_is_said(tmp_path):
    path = bert(tmp_path)
    text = (path / "tokenizer.json").read_text().replace("[MASK]", "[OWN]")
    (path / "tokenizer.json").write_text(text)
    with pytest.warns(UserWarning, match=r"has mask_token=\[MASK\], which tokenizer.json lacks"):
        hf_tokenizer.read(path, SIZES)


def test_an_id_of_config_json_that_is_no_special_token_is_said(tmp_path):
    path = of_llama(tmp_path, llama(), tokenizer_class="PreTrainedTokenizerFast")
    for ids in (4, [4, 5]):
        (path / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": ids}))
        with pytest.warns(UserWarning, match="config.json has eos_token_id=.*, 'a': texts are written without that"):
            hf_tokenizer.read(path, SIZES)


@pytest.mark.parametrize("has_json", [False, True])
def test_a_role_that_is_null_and_stands_around_texts(tmp_path, has_json):
    path = bert(tmp_path)
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "sep_token": None}))
    if has_json:
        with pytest.warns(UserWarning, match=r"puts \['\[CLS\]', ''\] around a text, and tokenizer.json"):
            hf_tokenizer.read(path, SIZES)
    else:
        with pytest.raises(
            ValueError, match="sep_token is null, and tokenizer_class=BertTokenizer puts it around texts"
        ):
            tokenizer_classes.read(path)


METASPACE = {"type": "Metaspace", "replacement": SPACE, "split": True}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"normalizer": None},
            r"cuts 'a  b ' into \['a', '▁b', '▁'\], and tokenizer.json into \['a', '▁', '▁b', '▁'\]",
        ),
        (
            {"pre_tokenizer": METASPACE | {"prepend_scheme": "never"}},
            "puts a space before the first word of a text, and",
        ),
        (
            {"pre_tokenizer": METASPACE | {"prepend_scheme": "first"}},
            "puts a space behind special tokens, and tokenizer",
        ),
        ({"added_tokens": []}, "takes the space before <mask>, which is not among the added_tokens of tokenizer.json"),
    ],
)
def test_spaces_of_a_class_with_languages(tmp_path, changes, sentence):
    path = spaced(tmp_path)
    saved = json.loads((path / "tokenizer.json").read_text())
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    (path / "tokenizer.json").write_text(json.dumps(saved | {"normalizer": spaces} | changes))
    with pytest.warns(UserWarning, match=sentence):
        hf_tokenizer.read(path, SIZES)


def test_a_folder_that_names_no_class_has_that_of_its_model(tmp_path):
    """Its languages stand where mBART has them, and what mBART-50's tokenizer.json does otherwise is said."""
    path = spaced(tmp_path)
    (path / "tokenizer_config.json").write_text(json.dumps({"unk_token": "<unk>"}))
    with pytest.warns(UserWarning, match=r"tokenizer_class=MBartTokenizer cuts 'a\\n b ' into \['a', '▁b'\]"):
        tokenizer = hf_tokenizer.read(path, SIZES)
    assert tokenizer.encode("a").tokens == [f"{SPACE}a", "</s>", "en_XX"]


def test_endings_of_words(tmp_path):
    """The class of CLIP marks the ends of words, and writes spaces there, also where its tokenizer.json does not."""
    vocab = {"<|startoftext|>": 0, "<|endoftext|>": 1, "a</w>": 2, "b</w>": 3, "a": 4, "b": 5}
    files = {"vocab.json": vocab, "merges.txt": "#version: 0.2\n"}
    path = write(tmp_path, files, tokenizer_class="CLIPTokenizer")
    tokenizer = tokenizer_classes.read(path)
    tokenizer.decoder = decoders.ByteLevel()
    saved = json.loads(tokenizer.to_str())
    (path / "tokenizer.json").write_text(json.dumps(saved))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenizer = hf_tokenizer.read(path, SIZES)
    assert tokenizer.decode([2, 4, 3]) == "a ab"
    (path / "tokenizer.json").write_text(json.dumps(saved | {"model": saved["model"] | {"end_of_word_suffix": None}}))
    with pytest.warns(UserWarning, match='has end_of_word_suffix="</w>", and tokenizer.json null'):
        hf_tokenizer.read(path, SIZES)
    (path / "tokenizer.json").write_text(json.dumps(saved | {"model": saved["model"] | {"ignore_merges": True}}))
    with pytest.warns(UserWarning, match="has ignore_merges=false, and tokenizer.json true"):
        hf_tokenizer.read(path, SIZES)
    (path / "tokenizer.json").write_text(json.dumps(saved | {"normalizer": {"type": "Lowercase"}}))
    with pytest.warns(UserWarning, match="cuts 'E\u0301' into "):
        hf_tokenizer.read(path, SIZES)
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    assert hf_tokenizer.read(path, SIZES).decode([2, 3]) == "a</w>b</w>"


def test_a_language_that_is_none_is_said(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hf_tokenizer.read(nllb(tmp_path), SIZES)
    with pytest.warns(
        UserWarning, match="src_lang=de_DE is no language of the tokenizer: texts have what tokenizer.json"
    ):
        tokenizer = hf_tokenizer.read(nllb(tmp_path, src_lang="de_DE"), SIZES)
    assert tokenizer.encode("").ids == [6, 2]


def test_tokens_of_pairs_for_unknown_characters_are_compared(tmp_path):
    with pytest.raises(
        UserError, match="reads an unknown character as <unk>, and tokenizer_config.json has unk_token=<s>"
    ):
        hf_tokenizer.read(nllb(tmp_path, unk_token="<s>"), SIZES)


def test_a_number_beyond_all_vocabularies_is_refused(tmp_path):
    numbered = {"99999999999": {"content": "<new>"}}
    with pytest.raises(UserError, match="'<new>' is token 99999999999 in added_tokens_decoder or"):
        hf_tokenizer.read(nllb(tmp_path, added_tokens_decoder=numbered), SIZES)


@pytest.mark.parametrize("changes", [{"unk_token": None}, {"fuse_unk": False}])
def test_how_nllb_reads_unknown_characters(tmp_path, changes):
    path = nllb(tmp_path)
    saved = json.loads((path / "tokenizer.json").read_text())
    (path / "tokenizer.json").write_text(json.dumps(saved | {"model": saved["model"] | changes}))
    name, value = next(iter(changes.items()))
    with pytest.warns(UserWarning, match=f"has {name}=.*, and tokenizer.json {json.dumps(value)}"):
        hf_tokenizer.read(path, SIZES)


def test_tokens_beside_the_vocabulary_that_added_tokens_decoder_lacks(tmp_path):
    with pytest.warns(UserWarning, match="has no deu_Latn of tokenizer.json in added_tokens_decoder"):
        hf_tokenizer.read(nllb(tmp_path, added_tokens_decoder={}, additional_special_tokens=["deu_Latn"]), SIZES)


def test_the_space_before_a_text_that_no_field_names(tmp_path):
    files = {"vocab.json": {"<|endoftext|>": 0, "a": 1, "\u0120a": 2}, "merges.txt": "#version: 0.2\n"}
    path = write(tmp_path, files, "gpt2", tokenizer_class="GPT2Tokenizer", add_prefix_space=True)
    (path / "tokenizer.json").write_text(tokenizer_classes.read(path).to_str())
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    with pytest.warns(UserWarning, match="puts no space before the first word of a text, and tokenizer.json does"):
        hf_tokenizer.read(path, SIZES)


def test_bytes_of_letters(tmp_path):
    """The class of CLIP writes bytes, whatever the decoder of tokenizer.json."""
    vocab = {"<|startoftext|>": 0, "<|endoftext|>": 1, "a</w>": 2, "\u00c3": 3, "\u00a9": 4}
    files = {"vocab.json": vocab, "merges.txt": "#version: 0.2\n"}
    path = write(tmp_path, files, tokenizer_class="CLIPTokenizer")
    saved = json.loads(tokenizer_classes.read(path).to_str())
    (path / "tokenizer.json").write_text(json.dumps(saved | {"decoder": {"type": "Fuse"}}))
    with pytest.warns(UserWarning, match="writes the bytes of '\u00e9' as that, and tokenizer.json as '\u00c3\u00a9'"):
        hf_tokenizer.read(path, SIZES)


def test_flags_that_the_class_of_qwen2_drops(tmp_path):
    vocab = {"vocab.json": {"<|endoftext|>": 0, "a": 1}, "merges.txt": "#version: 0.2\n"}
    path = write(tmp_path, vocab, "qwen2", eos_token="<|endoftext|>")
    saved = json.loads(tokenizer_classes.read(path).to_str())
    saved["added_tokens"][0]["single_word"] = True
    (path / "tokenizer.json").write_text(json.dumps(saved))
    with pytest.warns(
        UserWarning, match="Qwen2Tokenizer differs: eos_token takes the spaces around it, or whole words"
    ):
        tokenizer = hf_tokenizer.read(path, SIZES)
    assert 0 not in tokenizer.encode("a<|endoftext|>a").ids


def test_an_id_of_tokenizer_json_that_its_vocabulary_contradicts(tmp_path):
    values = json.loads(llama()["tokenizer.json"])
    values["added_tokens"][1]["id"] = 7
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.warns(UserWarning, match="added_tokens gives <s> the id 7, and as the library reads it that is 1"):
        tokenizer = tokenizer_kinds.read_own(tmp_path / "tokenizer.json")
    assert tokenizer.token_to_id("<s>") == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": {"unk_token": None}}, 'has unk_token="<unk>", and tokenizer.json null'),
        ({"model": {"fuse_unk": True}}, "has fuse_unk=false, and tokenizer.json true"),
        ({"normalizer": {"type": "Lowercase"}}, "has a normalizer of BertNormalizer, and tokenizer.json Lowercase"),
        (
            {"normalizer": {"strip_accents": False}},
            "has a normalizer with strip_accents=null, and tokenizer.json false",
        ),
        ({"normalizer": {"clean_text": False}}, "has clean_text=true, and the normalizer of tokenizer.json false"),
    ],
)
def test_what_gpt_does_otherwise_is_said(tmp_path, changes, sentence):
    files = {"vocab.json": {"<unk>": 0, "a</w>": 1, "b</w>": 2}, "merges.txt": "#version: 0.2\n"}
    path = write(tmp_path, files, "openai-gpt", tokenizer_class="OpenAIGPTTokenizer")
    saved = json.loads(tokenizer_classes.read(path).to_str())
    (path / "tokenizer.json").write_text(json.dumps(saved))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hf_tokenizer.read(path, SIZES)
    (path / "tokenizer.json").write_text(json.dumps(saved | {name: saved[name] | changes[name] for name in changes}))
    with pytest.warns(UserWarning, match=sentence):
        hf_tokenizer.read(path, SIZES)


def test_two_tokens_with_one_id_are_said(tmp_path):
    values = json.loads(llama()["tokenizer.json"])
    values["model"]["vocab"]["b"] = values["model"]["vocab"]["c"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.warns(UserWarning, match="the vocabulary gives b and c the id 7, and may write one for the other"):
        tokenizer_kinds.read_own(tmp_path / "tokenizer.json")
