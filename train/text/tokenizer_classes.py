"""The tokenizer classes of transformers whose files are read without tokenizer.json, each with its layout.

Defaults are those of transformers 4, with which such folders were made: a mask of RoBERTa takes the space before it,
and Llama puts <s> before a text. transformers 5 has dropped both where no file says so.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from train.text import (
    class_differences,
    default_tokens,
    extra_tokens,
    languages,
    tokenizer_files,
    vocabulary_checks,
    vocabulary_files,
)
from train.text.tokenizer_files import TokenizerFiles
from train.text.tokenizer_kinds import guarded

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.processors import TemplateProcessing


Build: TypeAlias = "Callable[[TokenizerFiles, vocabulary_files.Names], Tokenizer]"
Cuts: TypeAlias = Mapping[str, tuple[str, ...]]

# Words of SentencePiece, whether or not several spaces are one; of pairs of bytes; of BERT.
_WORDS: Cuts = {"a b": ("a", "\u2581b"), "a 12's": ("a", "\u258112's")}
_ENDS: Cuts = {"a  b ": ("a", "\u2581b", "\u2581"), "a 12's": ("a", "\u258112's")}
_APART: Cuts = {"a  b": ("a", "\u2581b"), "a\n b ": ("a", "\u2581b"), "a 12's": ("a", "\u258112's")}
_BYTES: Cuts = {"a b!": ("a", "\u0120b", "!"), "a 12's": ("a", "\u012012", "'s")}
_MARKS: Cuts = {"a b!": ("a", "b", "!"), "</": ("<", "/"), "a 12's": ("a", "12", "'", "s")}
_LOWER: Cuts = {**_MARKS, "A b!": ("a", "b", "!")}
_CLIP: Cuts = {"A b!": ("a", "b", "!"), "a 12's": ("a", "1", "2", "'s"), "E\u0301": ("\u00c3\u00a9",)}
_COMPOSED: Cuts = {**_BYTES, "e\u0301": ("\u00c3\u00a9",), "a 12's": ("a", "\u0120", "1", "2", "'s")}
_QUOTES: Cuts = {**_APART, "``a''": ('"a"',)}


class TokenizerClass(NamedTuple):
    """How a class reads its files.

    files: that a folder must have
    build: the folder, its special tokens -> a tokenizer without special tokens
    special: the default special tokens by their field
    template: what stands around a text, and around a pair; None: bos_token and eos_token, as add_bos_token and
        add_eos_token say, or as `scheme` says
    spaced: fields whose token takes the space before it, if no file says otherwise
    adds_bos: the default of add_bos_token
    target: as `build`, for the texts that a model writes, where they have a vocabulary of their own
    scheme: how languages are marked, where they are
    cuts: texts, and the words into which it cuts them, the first one without the space before it
    differs: what transformers 5 does otherwise with a folder
    """

    files: tuple[str, ...]
    build: "Build"
    special: Mapping[str, str]
    template: tuple[str, str] | None = None
    spaced: tuple[str, ...] = ()
    adds_bos: bool = False
    target: "Build | None" = None
    scheme: languages.Scheme | None = None
    cuts: Cuts = _WORDS
    differs: "Callable[[TokenizerFiles], Iterator[str]]" = lambda files: iter(())

    @property
    def model(self) -> str:
        """The kind of its vocabulary, as the tokenizers library calls it."""
        if self.scheme:
            return self.scheme.model
        if self.files == ("vocab.txt",):
            return "WordPiece"
        return "BPE" if self.files in (_PAIRS, ("tokenizer.model",)) else "Unigram"


_PAIRS = ("vocab.json", "merges.txt")
_TYPED = ("{cls_token} $A {sep_token}", "{cls_token} $A {sep_token} $B:1 {sep_token}:1")
_TWICE = ("{cls_token} $A {sep_token}", "{cls_token} $A {sep_token} {sep_token} $B {sep_token}")
_FINAL = ("$A {eos_token}", "$A {eos_token} $B {eos_token}")
_MASK = ("mask_token",)
_BERT = TokenizerClass(("vocab.txt",), vocabulary_files.bert, default_tokens.BERT, _TYPED, cuts=_MARKS)
_ROBERTA = TokenizerClass(
    _PAIRS, vocabulary_files.gpt2, default_tokens.ROBERTA, _TWICE, _MASK, cuts=_BYTES,
    differs=class_differences.dropped_mask,
)  # fmt: skip
_BOS_EOS = ("{bos_token} $A {eos_token}", "{bos_token} $A {eos_token} {eos_token} $B {eos_token}")


def _fairseq(template: tuple[str, str] | None, codes: list[str], scheme: str = "") -> TokenizerClass:
    """fairseq's layout with languages; every kind of space ends a word where they are few."""
    name, layout, splits_spaces = "sentencepiece.bpe.model", vocabulary_files.fairseq(*codes), len(codes) < 50
    build = vocabulary_files.sentencepiece(name, layout, splits_spaces=splits_spaces)
    return TokenizerClass(
        (name,), build, default_tokens.ROBERTA, template, _MASK, scheme=languages.SCHEMES.get(scheme),
        cuts=_APART if splits_spaces else _ENDS,
        differs=class_differences.dropped_languages if splits_spaces else class_differences.kept_spaces,
    )  # fmt: skip


CLASSES: Mapping[str, TokenizerClass] = {
    **dict.fromkeys(
        """BertTokenizer ConvBertTokenizer DistilBertTokenizer DPRContextEncoderTokenizer
        DPRQuestionEncoderTokenizer DPRReaderTokenizer ElectraTokenizer LayoutLMTokenizer LxmertTokenizer
        MobileBertTokenizer RealmTokenizer RetriBertTokenizer SqueezeBertTokenizer""".split(),
        _BERT,
    ),
    "MPNetTokenizer": TokenizerClass(
        ("vocab.txt",), vocabulary_files.bert, default_tokens.MPNET, _TWICE, _MASK, cuts=_MARKS
    ),
    "GPT2Tokenizer": TokenizerClass(_PAIRS, vocabulary_files.gpt2, default_tokens.GPT2, cuts=_BYTES),
    **dict.fromkeys(("RobertaTokenizer", "BartTokenizer", "LEDTokenizer", "LongformerTokenizer"), _ROBERTA),
    "DebertaTokenizer": TokenizerClass(
        _PAIRS, vocabulary_files.gpt2, default_tokens.DEBERTA, _TYPED, _MASK, cuts=_BYTES
    ),
    "Qwen2Tokenizer": TokenizerClass(
        _PAIRS, vocabulary_files.qwen2, default_tokens.QWEN2, cuts=_COMPOSED, differs=class_differences.dropped_flags
    ),
    "CLIPTokenizer": TokenizerClass(_PAIRS, vocabulary_files.clip, default_tokens.CLIP, _BOS_EOS, cuts=_CLIP),
    "OpenAIGPTTokenizer": TokenizerClass(_PAIRS, vocabulary_files.openai_gpt, default_tokens.OPENAI_GPT, cuts=_LOWER),
    "T5Tokenizer": TokenizerClass(
        ("spiece.model",),
        vocabulary_files.sentencepiece("spiece.model", vocabulary_files.t5),
        default_tokens.T5,
        _FINAL,
        cuts=_APART,
        differs=class_differences.dropped_sentinels,
    ),
    **dict.fromkeys(
        ("AlbertTokenizer", "FNetTokenizer"),
        TokenizerClass(("spiece.model",), vocabulary_files.albert, default_tokens.ALBERT, _TYPED, _MASK, cuts=_QUOTES),
    ),
    "BigBirdTokenizer": TokenizerClass(
        ("spiece.model",),
        vocabulary_files.sentencepiece("spiece.model", vocabulary_files.as_they_are, splits_spaces=False),
        {**default_tokens.ALBERT, "bos_token": "<s>", "eos_token": "</s>"},
        _TYPED,
        _MASK,
    ),
    "DebertaV2Tokenizer": TokenizerClass(("spm.model",), vocabulary_files.deberta_v2, default_tokens.DEBERTA, _TYPED),
    "XLMRobertaTokenizer": _fairseq(_BOS_EOS, []),
    "CamembertTokenizer": TokenizerClass(
        ("sentencepiece.bpe.model",),
        vocabulary_files.sentencepiece("sentencepiece.bpe.model", vocabulary_files.camembert),
        default_tokens.ROBERTA,
        _BOS_EOS,
        _MASK,
        cuts=_APART,
    ),
    "MBartTokenizer": _fairseq(None, languages.MBART, "MBartTokenizer"),
    "MBart50Tokenizer": _fairseq(None, [*languages.MBART, *languages.MBART_50], "MBart50Tokenizer"),
    "NllbTokenizer": _fairseq(None, languages.NLLB, "NllbTokenizer"),
    "M2M100Tokenizer": TokenizerClass(
        ("vocab.json", "sentencepiece.bpe.model"),
        vocabulary_files.m2m_100,
        default_tokens.M2M_100,
        scheme=languages.SCHEMES["M2M100Tokenizer"],
        differs=class_differences.languages_and_types,
    ),
    "MarianTokenizer": TokenizerClass(
        ("vocab.json", "source.spm", "target.spm"),
        vocabulary_files.marian("source.spm"),
        default_tokens.T5,
        ("$A {eos_token}", "$A $B {eos_token}"),
        target=vocabulary_files.marian("target.spm"),
    ),
    "LlamaTokenizer": TokenizerClass(
        ("tokenizer.model",),
        vocabulary_files.llama,
        default_tokens.LLAMA,
        adds_bos=True,
        cuts={"a b": ("a\u2581b",)},
        differs=class_differences.defaults_of_llama,
    ),
}

# The models that have another's tokenizer, by model_type.
_AS = {"clip_text_model": "clip", "gpt_neo": "gpt2", "mistral": "llama", "qwen3": "qwen2"}
_AS |= dict.fromkeys(("longt5", "mt5", "switch_transformers"), "t5")
_REMEDY = "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"


def read(folder: Path) -> "Tokenizer":
    """The tokenizer of a folder without tokenizer.json. Raises ValueError where it is of another class, or damaged."""
    files, rules = _rules(folder)
    return _built(rules, rules.build, files)


def read_target(folder: Path) -> "Tokenizer | None":
    """The tokenizer of the texts that a translation model writes, where it is not that of the texts it reads."""
    files, rules = _rules(folder)
    return _built(rules, rules.target, files) if rules.target else None


def _rules(folder: Path) -> tuple[TokenizerFiles, TokenizerClass]:
    """What a folder says of its tokenizer, and its class. Raises ValueError for an unknown class or missing files."""
    files = tokenizer_files.read(folder)
    name = class_name(files)
    if not name:
        raise ValueError(
            f"it has no tokenizer.json, and tokenizer_config.json names no tokenizer_class; where transformers is "
            f"installed, make tokenizer.json with {_REMEDY}"
        )
    if name not in CLASSES:
        raise ValueError(
            f"its tokenizer_class={name} is not read, as it cuts words by other rules; if that class has a fast form, "
            f"{_REMEDY} in transformers writes tokenizer.json, which is read"
        )
    rules = CLASSES[name]
    missing = [file for file in rules.files if not (folder / file).exists()]
    if missing:
        is_named = name in str(files.options.get("tokenizer_class"))
        cause = f"tokenizer_class={name}" if is_named else f"model_type={files.model_type}"
        raise ValueError(f"it has neither tokenizer.json nor {', '.join(missing)}, which {cause} reads; copy it there")
    return files, rules


def class_name(files: TokenizerFiles) -> str:
    """The class that a folder names, or that is named like its model; "" where none is."""
    return _of_model(files.model_type) if files.class_name in tokenizer_files.GENERIC else files.class_name


def _of_model(model_type: str) -> str:
    """The class that is named like the model; "" where none is."""
    word = _AS.get(model_type, model_type).replace("-", "").replace("_", "")
    return next((name for name in CLASSES if name.lower() == f"{word}tokenizer"), "")


def _built(rules: TokenizerClass, build: "Build", files: TokenizerFiles) -> "Tokenizer":
    """The tokenizer, built without the library's output but with our own warnings."""
    caught: list[warnings.WarningMessage] = []

    def build_and_record() -> "Tokenizer":
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always", UserWarning)
            tokenizer = _with_special(rules, build, files)
        caught.extend(recorded)
        return tokenizer

    tokenizer = guarded(build_and_record)
    for warning in caught:
        warnings.warn(f"{files.folder}: {warning.message}", stacklevel=2)
    return tokenizer


def _with_special(rules: TokenizerClass, build: "Build", files: TokenizerFiles) -> "Tokenizer":
    """The tokenizer with its special tokens, and with what it puts around texts."""
    names = {field: files.name(field, default) for field, default in rules.special.items()}
    names |= {field: token.content for field, token in files.special.items()}
    vocabulary_checks.check_pieces(files, rules.files[-1], rules.special, rules.template is not None)
    tokenizer = build(files, names)
    vocabulary_checks.check_special(files, rules.files, tokenizer, rules.special, rules.model)
    for sentence in rules.differs(files):
        warnings.warn(sentence, stacklevel=2)
    tokenizer_files.add_tokens(tokenizer, files, _named(tokenizer, rules, files))
    tokenizer.post_processor = post_processor(tokenizer, rules, files, names)
    return tokenizer


def _named(tokenizer: "Tokenizer", rules: TokenizerClass, files: TokenizerFiles) -> "Iterator[AddedToken]":
    """The special tokens with a field. A default one that the vocabulary lacks is left out: no model has its vector."""
    from tokenizers import AddedToken

    for field in extra_tokens.SPECIAL:
        token = files.special.get(field)
        if token is None and field in files.fields:  # null: there is none
            continue
        spaced = field in rules.spaced and field not in files.flagged
        if token is None and tokenizer.token_to_id(rules.special.get(field, "")) is not None:
            token = AddedToken(rules.special[field], normalized=False, special=True)
        if token is not None:
            yield AddedToken(token.content, lstrip=True, normalized=False, special=True) if spaced else token


def post_processor(
    tokenizer: "Tokenizer", rules: TokenizerClass, files: TokenizerFiles, names: Mapping[str, str]
) -> "TemplateProcessing":
    """What the class puts around a text and a pair of texts."""
    from tokenizers import processors

    if rules.scheme:
        templates = [template.split() for template in rules.scheme.templates(files)]
    elif rules.template is None:
        marks = names.keys() - {field for field, value in files.fields.items() if value is None}
        begin = "{bos_token}" if files.option("add_bos_token", rules.adds_bos) and "bos_token" in marks else ""
        end = "{eos_token}" if files.option("add_eos_token", False) and "eos_token" in marks else ""
        single = f"{begin} $A {end}".split()
        second = [f"{part}:1" for part in f"{begin} $B {end}".split()]
        templates = [single, [*single, *second]]
    else:
        templates = [template.split() for template in rules.template]
    single, pair = ([part.format(**names) for part in template] for template in templates)
    used = sorted({part.removesuffix(":1") for part in (*single, *pair)} - {"$A", "$B"})
    ids = {name: tokenizer.token_to_id(name) for name in used}
    vocabulary_checks.check_frame(files, rules.files[0], class_name(files), templates[0], ids)
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=list(ids.items()))
