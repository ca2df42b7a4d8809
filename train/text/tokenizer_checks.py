"""Where tokenizer.json and the folder's class or configuration say the same thing in two ways.

transformers 5 follows the class, and 4 the file. A field that contradicts the file is refused, with both values; of a
class that reads or writes texts in another way, the first difference is a warning, and the file is followed.
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from train.files.strict_json import json_text
from train.text import class_differences, tokenizer_classes, vocabulary_files
from train.text.sentencepiece_model import SPACE
from train.text.special import added_tokens
from train.text.tokenizer_classes import TokenizerClass
from train.text.tokenizer_files import AS_THE_FILE, UNKNOWN, TokenizerFiles

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# What stands for the space before a word in a token.
_SPACES = (SPACE, "\u0120")

# The bytes of é, as vocabularies of bytes write them.
_LETTER = "\u00c3\u00a9"

# The steps of normalizers that no class of SentencePiece has.
_OF_LETTERS = "Lowercase NFC NFD NFKC NFKD Nmt StripAccents BertNormalizer Prepend".split()

# How every class of WordPiece cuts words, those of pairs that mark the ends of words, and others.
_PIECES = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
_ENDS, _NO_ENDS = {"end_of_word_suffix": "</w>", "ignore_merges": False}, {"end_of_word_suffix": None}

# Further classes of transformers with rules of their own: their vocabularies, and texts with the words of them.
_BYTES, _SPACED, _OWN = {"a b": ("a", "\u0120b")}, {"a b": ("a\u2581b",)}, dict[str, tuple[str, ...]]()
_BYTES_OF = """BlenderbotTokenizer CodeGenTokenizer CohereTokenizer GPTNeoXTokenizer LayoutLMv3Tokenizer LukeTokenizer
MarkupLMTokenizer WhisperTokenizer""".split()
_PIECES_OF = """BarthezTokenizer LayoutXLMTokenizer MLukeTokenizer PegasusTokenizer RemBertTokenizer UdopTokenizer
XGLMTokenizer XLNetTokenizer""".split()
_FURTHER: Mapping[str, tuple[str, Mapping[str, tuple[str, ...]]]] = {
    **dict.fromkeys(_BYTES_OF, ("BPE", _BYTES)),
    **dict.fromkeys(_PIECES_OF, ("Unigram", _OWN)),
    **dict.fromkeys(("FunnelTokenizer", "LayoutLMv2Tokenizer", "SplinterTokenizer"), ("WordPiece", _OWN)),
    **dict.fromkeys(("CodeLlamaTokenizer", "HerbertTokenizer", "ReformerTokenizer"), ("BPE", _OWN)),
    "GemmaTokenizer": ("BPE", _SPACED),
}


def class_beside(files: TokenizerFiles) -> str:
    """The class beside tokenizer.json: that of the folder, also a generic one, else that named like its model."""
    return files.class_name or tokenizer_classes.class_name(files)


def check(tokenizer: "Tokenizer", files: TokenizerFiles) -> None:
    """Raises ValueError where tokenizer_config.json contradicts tokenizer.json on how texts are prepared, or the latter
    loses texts; warns where its class does."""
    is_of_file = files.model_type == "llama" or files.model_type in AS_THE_FILE  # but where a class is named
    class_name = files.class_name if is_of_file else class_beside(files)
    rules = tokenizer_classes.CLASSES.get(class_name)
    for name, value in _prepared(tokenizer, rules, files).items():
        if files.stated(name) not in (None, value):
            said = "null" if files.options[name] is None else json_text(not value)
            raise ValueError(
                f"{name} is {said} in tokenizer_config.json and {json_text(value)} in tokenizer.json; make them equal"
            )
    _check_unknown(tokenizer, files)
    if all(tokenizer.encode("a").special_tokens_mask) and tokenizer.model.tokenize("a"):
        raise ValueError("the post_processor of tokenizer.json drops the text itself; it must have $A")
    if class_differences.follows_file(tokenizer, class_name):
        return
    difference = next(_differences(tokenizer, rules, files) if rules else _differences_of(tokenizer, files), "")
    if difference:
        warnings.warn(
            f"{files.folder}: tokenizer_class={class_name} {difference}; tokenizer.json is followed", stacklevel=2
        )


def _prepared(tokenizer: "Tokenizer", rules: TokenizerClass | None, files: TokenizerFiles) -> dict[str, bool]:
    """How tokenizer.json prepares texts, by the fields of tokenizer_config.json."""
    from tokenizers import normalizers, pre_tokenizers

    prepared: dict[str, bool] = {}
    if isinstance(step := tokenizer.normalizer, normalizers.BertNormalizer):
        strips = step.lowercase if step.strip_accents is None else step.strip_accents
        prepared = {"do_lower_case": step.lowercase, "strip_accents": strips}
        prepared["tokenize_chinese_chars"] = step.handle_chinese_chars
    cuts = tokenizer.pre_tokenizer
    steps: Any = cuts if isinstance(cuts, pre_tokenizers.Sequence) else [cuts]
    for step in steps:
        if isinstance(step, pre_tokenizers.ByteLevel):
            prepared["add_prefix_space"] = step.add_prefix_space
        if isinstance(step, pre_tokenizers.Metaspace):
            prepared["add_prefix_space"] = step.prepend_scheme != "never"
    cases = tokenizer.normalizer
    if rules and cases and rules.build in (vocabulary_files.albert, vocabulary_files.deberta_v2):
        prepared |= {"do_lower_case": "a" in cases.normalize_str("A")}
        prepared |= {"keep_accents": cases.normalize_str("\u00e9") != "e"} if "keep_accents" in files.options else {}
    return prepared


def _check_unknown(tokenizer: "Tokenizer", files: TokenizerFiles) -> None:
    """Raises ValueError where tokenizer.json has no token for unknown characters, or another than the unk_token."""
    try:
        ids = tokenizer.encode(UNKNOWN, add_special_tokens=False).ids
    except Exception as error:  # the library raises that bare
        raise ValueError(f"tokenizer.json has no token for what it does not know: {error}; name one in it") from error
    token, unknown = str(tokenizer.id_to_token(ids[-1])) if ids else "", files.name("unk_token", "")
    reads_bytes = token.startswith("<0x") or token != getattr(tokenizer.model, "unk_token", token)
    if reads_bytes or token in ("", unknown) or UNKNOWN in token:
        return
    is_null = "unk_token" in files.options and files.options["unk_token"] is None
    if is_null or tokenizer.token_to_id(unknown) is not None:
        raise ValueError(
            f"tokenizer.json reads an unknown character as {token}, and tokenizer_config.json has "
            f"unk_token={'null' if is_null else unknown}; make them equal"
        )


def _differences(tokenizer: "Tokenizer", rules: TokenizerClass, files: TokenizerFiles) -> Iterator[str]:
    """How the class reads and writes texts in another way than tokenizer.json does."""
    yield from _differences_of_words(tokenizer, rules.model, rules.cuts)
    if type(tokenizer.model).__name__ != rules.model:
        return
    is_llama, readers = rules.build is vocabulary_files.llama, (vocabulary_files.albert, vocabulary_files.deberta_v2)
    is_gpt2, read = rules.build is vocabulary_files.gpt2, {*_OF_LETTERS} - ({"Prepend"} if is_llama else set())
    further = [step for step in class_differences.steps(tokenizer.normalizer) if is_gpt2 or step in read]
    if further and (is_llama or is_gpt2 or (rules.model == "Unigram" and rules.build not in readers)):
        yield f"has no normalizer of {', '.join(further)}, as tokenizer.json has"
    if is_gpt2 and "add_prefix_space" not in files.options and _words(tokenizer, "a") == ["\u0120a"]:
        yield "puts no space before the first word of a text, and tokenizer.json does"
    yield from _difference_of_frame(tokenizer, rules, files, "a")
    if rules.model == "WordPiece" or rules.build is vocabulary_files.openai_gpt:
        yield from class_differences.of_bert(tokenizer, files)
    for name, value in _parts_of_model(rules, files).items():
        own = getattr(tokenizer.model, name, None)
        if own != value and (own or value):
            yield f"has {name}={json_text(value)}, and tokenizer.json {json_text(None if own == '' else own)}"
    if rules.build is vocabulary_files.llama:
        yield from _differences_of_llama(tokenizer, files)
    elif SPACE in "".join(piece for pieces in rules.cuts.values() for piece in pieces):
        yield from _differences_of_words_with_spaces(tokenizer, rules, files)
    yield from _differences_of_writing(tokenizer, rules)
    yield from _difference_of_frame(tokenizer, rules, files, "a", "a")
    yield from _difference_of_added(tokenizer, rules, files)
    if rules.differs is class_differences.dropped_flags:
        yield from (f"differs: {text}" for text in class_differences.dropped_flags(files, tokenizer))
    for field, token in rules.special.items():
        if field not in files.fields and tokenizer.token_to_id(token) is None:
            yield f"has {field}={token}, which tokenizer.json lacks"


def _parts_of_model(rules: TokenizerClass, files: TokenizerFiles) -> Mapping[str, object]:
    """What the class has beside its vocabulary, by the attributes of tokenizer.json's model."""
    unknown = {"unk_token": files.name("unk_token", "<unk>")}
    if rules.model == "WordPiece":
        return _PIECES
    if rules.build is vocabulary_files.openai_gpt:
        return {**_ENDS, **unknown, "fuse_unk": False}
    if rules.build is vocabulary_files.clip:
        return _ENDS
    return {**unknown, "fuse_unk": True, **_NO_ENDS} if rules.scheme and rules.model == "BPE" else _NO_ENDS


def _differences_of(tokenizer: "Tokenizer", files: TokenizerFiles) -> Iterator[str]:
    """How one of the further classes does."""
    if files.class_name in _FURTHER:
        yield from _differences_of_words(tokenizer, *_FURTHER[files.class_name])


def _differences_of_words(tokenizer: "Tokenizer", model: str, cuts: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Another vocabulary, or other words."""
    if (own_model := type(tokenizer.model).__name__) != model:
        yield f"has a vocabulary of {model}, and tokenizer.json one of {own_model}"
        return
    for text, pieces in cuts.items():
        own = _pieces(tokenizer, text)
        if own != list(pieces):
            yield f"cuts {text!r} into {list(pieces)}, and tokenizer.json into {own}"


def _difference_of_frame(
    tokenizer: "Tokenizer", rules: TokenizerClass, files: TokenizerFiles, *texts: str
) -> Iterator[str]:
    """The tokens around a text or a pair, where the class puts others."""
    if rules.template is None:
        return
    absent = {field for field, value in files.fields.items() if value is None}
    names = {field: files.name(field, "" if field in absent else default) for field, default in rules.special.items()}
    parts = [part.removesuffix(":1") for part in rules.template[len(texts) - 1].split()]
    frame = [part.format(**names) for part in parts if not part.startswith("$")]
    own = [str(tokenizer.id_to_token(token)) for tokens in added_tokens(tokenizer, *texts) for token in tokens]
    if frame != own:
        yield f"puts {frame} around {'a text' if len(texts) == 1 else 'a pair'}, and tokenizer.json {own}"


def _difference_of_added(tokenizer: "Tokenizer", rules: TokenizerClass, files: TokenizerFiles) -> Iterator[str]:
    """The first token beside the vocabulary of tokenizer.json that added_tokens_decoder lacks, where there is one."""
    if "added_tokens_decoder" not in files.options:
        return
    named = {token.content: token for token in (*files.extra, *files.special.values(), *files.numbered.values())}
    plain = {token for field, token in rules.special.items() if field not in files.fields}
    for index, token in tokenizer.get_added_tokens_decoder().items():
        own, is_further = named.get(token.content), tokenizer.model.token_to_id(token.content) is None
        flags, own_flags = ((t.lstrip, t.rstrip, t.single_word) if t else (False,) * 3 for t in (token, own))
        is_absent = (own is None and token.content not in plain) or (is_further and index not in files.numbered)
        if flags != own_flags or is_absent:
            yield f"has no {token.content} of tokenizer.json in added_tokens_decoder, or reads it with other spaces"
            return


def _pieces(tokenizer: "Tokenizer", text: str) -> list[str]:
    """What the words of a text are before they are cut into tokens; the first one without the space before it."""
    pieces = _words(tokenizer, text)
    return [pieces[0].lstrip("".join(_SPACES)), *pieces[1:]] if pieces else []


def _words(tokenizer: "Tokenizer", text: str) -> list[str]:
    """What the words of a text are, with their spaces."""
    prepared = text if tokenizer.normalizer is None else tokenizer.normalizer.normalize_str(text)
    step: Any = tokenizer.pre_tokenizer
    return [prepared] if step is None else [piece for piece, _ in step.pre_tokenize_str(prepared)]


def _differences_of_words_with_spaces(
    tokenizer: "Tokenizer", rules: TokenizerClass, files: TokenizerFiles
) -> Iterator[str]:
    """Whether the first word of a text has a space, and that behind a token; whether a mask takes the one before it."""
    end = files.name("eos_token", rules.special.get("eos_token", ""))
    tokens = tokenizer.encode(f"{end}a", add_special_tokens=False).tokens
    if not "".join(_words(tokenizer, "a")).startswith(SPACE) and files.option("add_prefix_space", True):
        yield "puts a space before the first word of a text, and tokenizer.json does not"
    elif len(tokens) > 1 and tokens[0] == end and not tokens[1].startswith(SPACE):
        yield "puts a space behind special tokens, and tokenizer.json does not"
    mask = files.name("mask_token", rules.special.get("mask_token", ""))
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    if "mask_token" in rules.spaced and mask not in added and tokenizer.token_to_id(mask) is not None:
        yield f"takes the space before {mask}, which is not among the added_tokens of tokenizer.json"


def _differences_of_llama(tokenizer: "Tokenizer", files: TokenizerFiles) -> Iterator[str]:
    """How Llama's class marks spaces, and reads and writes bytes."""
    from tokenizers import pre_tokenizers

    if not getattr(tokenizer.model, "byte_fallback", True):
        yield "reads unknown characters as bytes, and tokenizer.json does not"
    scheme = "first" if files.option("add_prefix_space", True) else "never"
    for text in ("  a", "a b "):
        words = [word for word, _ in pre_tokenizers.Metaspace("\u2581", scheme, split=False).pre_tokenize_str(text)]
        if (own := _words(tokenizer, text)) != words:
            yield f"reads {text!r} as {words}, and tokenizer.json as {own}"
    end, legacy = files.name("eos_token", "</s>"), files.option("legacy", False)
    tokens = tokenizer.encode(f"{end}a", add_special_tokens=False).tokens
    is_spaced = len(tokens) > 1 and tokens[0] == end and tokens[1].startswith(_SPACES)
    if len(tokens) > 1 and is_spaced != legacy:
        spacing = "a space" if legacy else "no space"
        yield f"with legacy={json_text(legacy)} puts {spacing} behind special tokens, and tokenizer.json does otherwise"
    yield from class_differences.bytes_of_a_letter(tokenizer, *(f"<0x{byte:02X}>" for byte in "\u00e9".encode()))


def _differences_of_writing(tokenizer: "Tokenizer", rules: TokenizerClass) -> Iterator[str]:
    """Two tokens that say themselves whether a space is between them."""
    letters = "".join(piece for pieces in rules.cuts.values() for piece in pieces)
    if _LETTER in letters:
        yield from class_differences.bytes_of_a_letter(tokenizer, *_LETTER)
    spaces = next((space for space in _SPACES if space in letters), "")
    begin = "##" if rules.model == "WordPiece" else spaces
    end = getattr(tokenizer.model, "end_of_word_suffix", None) or ""
    words: list[str] = []
    for index in range(tokenizer.get_vocab_size() if begin or end else 0):
        token = str(tokenizer.id_to_token(index))
        word = token.removesuffix(end) if end else token.removeprefix(begin)
        if word != token and word.isascii() and word.isalpha():
            words.append(word)
        if len(words) == 2:
            tokens = [f"{word}{end}" if end else f"{begin}{word}" for word in words]
            text = tokenizer.decode([tokenizer.token_to_id(token) or 0 for token in tokens]).strip()
            expected = f"##{words[0]}{words[1]}" if begin == "##" else " ".join(words)
            if text != expected:
                yield f"writes {tokens} as {expected!r}, and tokenizer.json as {text!r}"
            return
