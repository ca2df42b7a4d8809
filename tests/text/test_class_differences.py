"""What a class of transformers does otherwise than a folder's files: each sentence once, and the ids that are read."""

import json
import warnings
from types import SimpleNamespace

import pytest
from sentencepiece_files import model, piece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from train import UserError
from train.text import hf_tokenizer, tokenizer_classes, tokenizer_kinds

SPACE = "\u2581"
BYTES = {f"<0x{byte:02X}>": index for index, byte in enumerate(range(256), start=9)}
WORDS = {text: index for index, text in enumerate(("<unk>", "<s>", "</s>", SPACE, "a", "b", f"{SPACE}a", "c", "ab"))}
WORDS |= BYTES
SIZES = SimpleNamespace(vocab=1000)


def write(folder, files, model_type="", **fields):
    """A folder of these files and fields of tokenizer_config.json."""
    contents = {"config.json": {"model_type": model_type} if model_type else {}, "tokenizer_config.json": fields}
    for name, content in (contents | files).items():
        content = content if isinstance(content, str | bytes) else json.dumps(content)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def llama(**parts):
    """A tokenizer.json as the class of Llama makes it, but for some parts; `model` changes the model."""
    options = {"fuse_unk": True, "byte_fallback": True, **parts.pop("model", {})}
    tokenizer = Tokenizer(models.BPE(WORDS, [(SPACE, "a")], **options))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "first", split=False)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B")
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return {"tokenizer.json": tokenizer.to_str()}


def of_llama(folder, files, **fields):
    return write(folder, files, "llama", **{"tokenizer_class": "LlamaTokenizer", "legacy": False, **fields})


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


BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]


def bert(folder, **changes):
    """A folder of BERT's class with tokenizer.json, whose fields are changed."""
    write(folder, {"vocab.txt": "\n".join(BERT) + "\n"}, "bert", tokenizer_class="BertTokenizer")
    saved = json.loads(tokenizer_classes.read(folder).to_str())
    (folder / "tokenizer.json").write_text(json.dumps(saved | {name: saved[name] | changes[name] for name in changes}))
    return folder


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


NEW = {"additional_special_tokens": ["<new>"]}
XLM_R = {"sentencepiece.bpe.model": model(SPACE, f"{SPACE}a", "b")}
T5 = {"spiece.model": model(SPACE, f"{SPACE}a", "b")}
KIND_OF_PAIRS = {"sentencepiece.bpe.model": model(SPACE, f"{SPACE}a", "b", kind=2)}
M2M_100 = {
    "vocab.json": {text: index for index, text in enumerate(("<s>", "<pad>", "</s>", "<unk>", SPACE, f"{SPACE}a"))},
    "sentencepiece.bpe.model": model(SPACE, f"{SPACE}a", kind=2),
}
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


def test_an_id_of_config_json_that_is_no_special_token_is_said(tmp_path):
    path = of_llama(tmp_path, llama(), tokenizer_class="PreTrainedTokenizerFast")
    for ids in (4, [4, 5]):
        (path / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": ids}))
        with pytest.warns(UserWarning, match="config.json has eos_token_id=.*, 'a': texts are written without that"):
            hf_tokenizer.read(path, SIZES)


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


def spaced(folder, **changes):
    """A folder of mBART-50's class with tokenizer.json, whose fields are changed, and whose config.json is of mBART."""
    path = write(folder, XLM_R, "mbart", tokenizer_class="MBart50Tokenizer", additional_special_tokens=["de_DE"])
    saved = json.loads(tokenizer_classes.read(path).to_str())
    (path / "tokenizer.json").write_text(json.dumps(saved | changes))
    return path


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


def nllb(folder, **fields):
    """A folder of NLLB's class with tokenizer.json, one language and fields of tokenizer_config.json."""
    vocab = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, SPACE: 4, f"{SPACE}a": 5}
    tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always")
    tokenizer.decoder = decoders.Metaspace(SPACE, "always")
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "deu_Latn", AddedToken("<mask>", lstrip=True)])
    frame = {"special_tokens": [("</s>", 2), ("deu_Latn", 6)]}
    tokenizer.post_processor = processors.TemplateProcessing(
        single="deu_Latn $A </s>", pair="deu_Latn $A $B </s>", **frame
    )
    files = {"tokenizer.json": tokenizer.to_str()}
    return write(folder, files, "m2m_100", **{"tokenizer_class": "NllbTokenizer", "src_lang": "deu_Latn"} | fields)


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


def test_a_model_without_a_configuration_has_the_tokens_of_its_class_alone(tmp_path):
    """</s> is text for GPT-2, whose documents end in another token."""
    vocab = {"<|endoftext|>": 0, "</s>": 1, "a": 2}
    path = write(tmp_path, {"vocab.json": vocab, "merges.txt": "#version: 0.2\n"}, "gpt2")
    (path / "tokenizer_config.json").unlink()
    tokenizer = hf_tokenizer.read(path, SIZES)
    assert "sep" not in tokenizer.ids
    assert tokenizer.ids["eos"] == 0


def test_an_id_of_tokenizer_json_that_its_vocabulary_contradicts(tmp_path):
    values = json.loads(llama()["tokenizer.json"])
    values["added_tokens"][1]["id"] = 7
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.warns(UserWarning, match="added_tokens gives <s> the id 7, and as the library reads it that is 1"):
        tokenizer = tokenizer_kinds.read_own(tmp_path / "tokenizer.json")
    assert tokenizer.token_to_id("<s>") == 1
