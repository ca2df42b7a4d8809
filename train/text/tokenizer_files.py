"""What a Hugging Face folder says of its tokenizer beside the vocabulary.

tokenizer_config.json, special_tokens_map.json, added_tokens.json and config.json are read once. Where two of them say
the same thing in two ways, nothing is taken: the error names both.
"""

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from tfm.options.choices import Range, check_object, check_type
from tfm.options.json_text import read_object
from train.files.strict_json import json_text
from train.text import extra_tokens
from train.text.extra_tokens import MAP, SPECIAL, token_of

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

UNKNOWN = "\U000132f9"  # a character that no tokenizer knows
_CONFIG, _ADDED, _DECODER = "tokenizer_config.json", "added_tokens.json", extra_tokens.DECODER
_Id = Annotated[int, Range(0, 1 << 24)]
_SWITCHES = ("do_lower_case", "strip_accents", "tokenize_chinese_chars", "add_prefix_space")
GENERIC = ("", "PreTrainedTokenizer", "TokenizersBackend")  # names of classes that say nothing of the files

# Models whose tokenizer.json transformers 5 follows, whatever class their folders name.
AS_THE_FILE = frozenset(("mistral", "mixtral", "modernbert", "umt5"))


class TokenizerFiles(NamedTuple):
    """A folder and what it says.

    class_name: the tokenizer's class in transformers, without "Fast"; "" where no file names one
    model_type: of config.json
    options: the fields of tokenizer_config.json
    fields: those, and the ones of special_tokens_map.json, which count where tokenizer_config.json says nothing of
        added tokens, as transformers has it
    special: special tokens by their field, such as mask_token
    flagged: the fields that say how their token takes the spaces around it
    numbered: tokens beside the vocabulary, by the id that the folder gives them
    extra: special tokens without a field
    """

    folder: Path
    class_name: str
    model_type: str
    options: Mapping[str, object]
    fields: Mapping[str, object]
    special: "Mapping[str, AddedToken]"
    flagged: frozenset[str]
    numbered: "Mapping[int, AddedToken]"
    extra: "list[AddedToken]"

    def option(self, name: str, default: bool) -> bool:
        """A field that is true or false; see `stated`."""
        value = self.stated(name)
        return default if value is None else value

    def optional(self, name: str) -> bool | None:
        """A field that is true, false or null."""
        return check_object(f"{self.folder / _CONFIG}: ", self.options, {name: bool | None}).get(name)

    def stated(self, name: str) -> bool | None:
        """A field that is true or false; null is false, as in transformers, but where that stands for a default."""
        value = self.optional(name)
        class_name = self.class_name or self.model_type
        is_open = "llama" in class_name.lower() or class_name in (*GENERIC, "mistral")
        has_default = name == "strip_accents" or (name == "add_prefix_space" and is_open)
        return False if value is None and name in self.options and not has_default else value

    def text(self, name: str, default: str) -> str:
        """A field of text."""
        value = check_object(f"{self.folder / _CONFIG}: ", self.options, {name: str | None}).get(name)
        return default if value is None else value

    def size(self, name: str, default: int) -> int:
        """A field that is a number of tokens."""
        value = check_object(f"{self.folder / _CONFIG}: ", self.options, {name: _Id | None}).get(name)
        return default if value is None else value

    def words(self, name: str) -> list[str]:
        """A field that is a list of texts."""
        return check_object(f"{self.folder / _CONFIG}: ", self.options, {name: list[str] | None}).get(name) or []

    def name(self, field: str, default: str) -> str:
        """The special token of a field."""
        return self.special[field].content if field in self.special else default


def read(folder: Path) -> TokenizerFiles:
    """Reads the files that exist. Raises ValueError where one is damaged or two contradict each other."""
    options, special_map, model = (_object(folder / name) for name in (_CONFIG, MAP, "config.json"))
    check_object(f"{folder / _CONFIG}: ", options, dict.fromkeys(_SWITCHES, bool | None))
    _compare(folder, options, special_map)
    sources = (options,) if _DECODER in options else (options, special_map)
    fields = {name: value for source in sources for name, value in source.items() if value is not None}
    if options.get("init_inputs"):
        warnings.warn(f"{folder / _CONFIG}: init_inputs is not read; transformers takes it for arguments", stacklevel=2)
    for field in SPECIAL:
        if fields.get(field) == "":
            warnings.warn(
                f"{folder}: {field} is empty, where transformers takes unk_token: there is none", stacklevel=2
            )
    special = {field: token_of(folder, field, fields[field]) for field in SPECIAL if fields.get(field)}
    extra = extra_tokens.read(folder, options, special_map)
    flagged = frozenset(field for source in sources for field in SPECIAL if isinstance(source.get(field), dict))
    numbered = _numbered(folder, options, {token.content for token in special.values()} | extra.marked)
    extra_tokens.say_lost(folder, extra, {token.content for token in numbered.values()})
    _compare_flags({field: special[field] for field in flagged & special.keys()}, numbered)
    model_type = check_object(f"{folder / 'config.json'}: ", model, {"model_type": str | None}).get("model_type") or ""
    class_name = _class_name(folder, options, model, model_type)
    fields = {**dict.fromkeys(name for source in sources for name in source), **fields}
    return TokenizerFiles(folder, class_name, model_type, options, fields, special, flagged, numbered, extra.tokens)


def add_tokens(tokenizer: "Tokenizer", files: TokenizerFiles, named: "Iterable[AddedToken]" = ()) -> None:
    """Adds the tokens beside the vocabulary; added_tokens_decoder counts for flags too, as in transformers.

    Of fields that have one token with other flags, the last new flags count, as there.

    Raises ValueError where a token gets another id than the folder gives it.
    """
    added = {token.content: repr(token) for token in tokenizer.get_added_tokens_decoder().values()}
    decoder = files.options.get(_DECODER)
    stated = {int(key) for key in decoder} if isinstance(decoder, dict) else set[int]()
    changed = {
        token.content: token
        for index, token in files.numbered.items()
        if index in stated and added.get(token.content, "") not in ("", repr(token))
    }
    numbered = {token.content: token for _, token in sorted(files.numbered.items())}
    further = [token for token in (*named, *files.extra) if token.content not in numbered]
    new = {repr(token): token for token in (*numbered.values(), *further) if token.content not in added}
    tokenizer.add_tokens([*changed.values(), *new.values()])
    for index, token in files.numbered.items():
        if tokenizer.token_to_id(token.content) != index:
            texts = numbered.keys() - {token.content}
            roles = [f"{field}={own}" for field, own in files.special.items() if own.content not in texts]
            cause = ", ".join([*roles, *([f"tokenizer_class={files.class_name}"] if files.class_name else [])])
            raise ValueError(
                f"{token.content!r} is token {index} in {_DECODER} or {_ADDED} and "
                f"{tokenizer.token_to_id(token.content)} in its vocabulary{cause and f' ({cause})'}; make them equal"
            )


def _object(path: Path) -> dict[str, object]:
    return read_object(path) if path.exists() else {}


def _class_name(folder: Path, options: Mapping[str, object], model: Mapping[str, object], model_type: str) -> str:
    """tokenizer_class of tokenizer_config.json, else that of config.json; what transformers 5 takes for some models."""
    if model_type == "qwen2":
        return "Qwen2Tokenizer"
    if model_type in AS_THE_FILE and (folder / "tokenizer.json").exists():
        return "TokenizersBackend"
    for source, name in ((options, _CONFIG), (model, "config.json")):
        value = check_object(f"{folder / name}: ", source, {"tokenizer_class": str | None}).get("tokenizer_class")
        if value:
            return value.removesuffix("Fast")
    return ""


def _compare(folder: Path, options: Mapping[str, object], special_map: Mapping[str, object]) -> None:
    """Raises ValueError for a special token that the two files have in two ways."""
    for field in SPECIAL:
        texts = [
            token_of(folder, field, source[field]).content for source in (options, special_map) if source.get(field)
        ]
        if len(set(texts)) > 1:
            raise ValueError(f"{field} is {texts[0]!r} in {_CONFIG} and {texts[1]!r} in {MAP}; make them equal")
        if texts and _DECODER not in options and special_map.get(field, "") is None:
            raise ValueError(f"{field} is {texts[0]!r} in {_CONFIG} and null in {MAP}; make them equal")


def _compare_flags(special: "Mapping[str, AddedToken]", numbered: "Mapping[int, AddedToken]") -> None:
    """Raises ValueError where a special token takes the spaces around it in two ways."""
    ids = {token.content: index for index, token in numbered.items()}
    for field, token in special.items():
        index = ids.get(token.content)
        if index is None:
            continue
        for flag in ("lstrip", "rstrip", "single_word"):
            values = getattr(token, flag), getattr(numbered[index], flag)
            if values[0] != values[1]:
                raise ValueError(
                    f"{field} has {flag}={json_text(values[0])}, and added_tokens_decoder.{index} has "
                    f"{flag}={json_text(values[1])}; make them equal"
                )


def _numbered(folder: Path, options: Mapping[str, object], special: set[str]) -> "dict[int, AddedToken]":
    """The tokens of added_tokens_decoder and of added_tokens.json."""
    from tokenizers import AddedToken

    where = f"{folder / _CONFIG}: added_tokens_decoder"
    tokens: dict[int, AddedToken] = {}
    for key, value in check_type(where, options.get(_DECODER) or {}, dict[str, dict]).items():
        if not key.isdecimal():
            raise ValueError(f"{where} has the key {key!r}, where an id must stand")
        tokens[int(key)] = token_of(folder, f"added_tokens_decoder.{key}", value)
    ids = {token.content: index for index, token in tokens.items()}
    if lost := [text for text in _object(folder / _ADDED) if text not in ids and _DECODER in options]:
        warnings.warn(
            f"{folder}: {_DECODER} has no {lost[0]} of {_ADDED}, which transformers 5 leaves out then", stacklevel=2
        )
    for text, index in check_type(_ADDED, _object(folder / _ADDED), dict[str, _Id]).items():
        if ids.setdefault(text, index) != index:
            raise ValueError(f"token {text!r} is {ids[text]} in {_CONFIG} and {index} in {_ADDED}; make them equal")
        is_special = text in special
        tokens.setdefault(index, AddedToken(text, normalized=not is_special, special=is_special))
        if tokens[index].content != text:
            raise ValueError(f"id {index} is {tokens[index].content!r} and {text!r} in {_ADDED}; remove one")
    return tokens
