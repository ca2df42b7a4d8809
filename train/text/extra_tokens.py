"""The special tokens of a folder beside those with a role, and which of them transformers 5 leaves out."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tfm.options.choices import check_object, check_type

if TYPE_CHECKING:
    from tokenizers import AddedToken

# The fields of special tokens, in the order in which transformers adds them to a vocabulary.
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

CONFIG, MAP, DECODER = "tokenizer_config.json", "special_tokens_map.json", "added_tokens_decoder"
EXTRA = ("additional_special_tokens", "extra_special_tokens")
_OBJECTS = (*EXTRA, "model_specific_special_tokens")
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")

# Without these, transformers reads the special tokens of a SentencePiece model, in place of some fields.
_WITHOUT_PIECES = ("tokenizer.json", "vocab.json")


class ExtraTokens(NamedTuple):
    """Special tokens beside `SPECIAL`.

    tokens: of tokenizer_config.json and special_tokens_map.json
    marked: texts that are special in added_tokens.json too
    kept: the texts that transformers 5 reads
    """

    tokens: "list[AddedToken]"
    marked: set[str]
    kept: set[str]


def read(folder: Path, options: Mapping[str, object], special_map: Mapping[str, object]) -> ExtraTokens:
    """What the fields of the two files say. Raises ValueError for a fault in a field."""
    additional, extra = EXTRA
    is_object, is_in_map = isinstance(options.get(extra), dict), extra in special_map and DECODER not in options
    first = options.get(extra) or options.get(additional) or []
    if is_in_map and not isinstance(special_map[extra], list):
        first = []
    kept = [{**options, additional: options.get(additional) if is_object else None, extra: first}]
    if DECODER not in options:
        is_stated = is_in_map or (not is_object and any(name in options for name in EXTRA))
        has_pieces = any(folder.glob("*.model")) and not any((folder / name).exists() for name in _WITHOUT_PIECES)
        later = None if is_stated or has_pieces else special_map.get(additional)
        kept.append({**special_map, additional: later})
    lists = [{extra: source.get(extra)} for source in kept if isinstance(source.get(extra), list)]
    return ExtraTokens(
        [token for source in (options, special_map) for token in _tokens(folder, source)],
        *({token.content for source in part for token in _tokens(folder, source)} for part in (lists, kept)),
    )


def say_lost(folder: Path, tokens: ExtraTokens, numbered: Iterable[str]) -> None:
    """Warns of tokens that transformers 5 leaves out, but for those that have a number beside a vocabulary."""
    kept = tokens.kept.union(numbered)
    lost = [token.content for token in tokens.tokens if token.content not in kept]
    if lost:
        warnings.warn(
            f"{folder}: of {EXTRA[0]} and {EXTRA[1]} in {CONFIG} and {MAP}, transformers 5 leaves out such as "
            f"{lost[0]}; here they are special",
            stacklevel=2,
        )


def _tokens(folder: Path, source: Mapping[str, object]) -> "Iterator[AddedToken]":
    """Special tokens beside `SPECIAL`, of a file: in a list, an object of names and tokens, or a field's own."""
    lists = [source.get(field) for field in EXTRA]
    if all(lists) and all(isinstance(values, list) for values in lists) and lists[0] != lists[1]:
        raise ValueError(f"{EXTRA[0]} and {EXTRA[1]} of {folder} differ; make them equal, or remove one")
    for field in _OBJECTS:
        values = source.get(field) or []
        if not isinstance(values, list if field == EXTRA[0] else list | dict):
            raise ValueError(f"{field}={values!r} must be a list")
        for value in values.values() if isinstance(values, dict) else values:
            yield token_of(folder, field, value)
    for field, value in source.items():
        is_token = isinstance(value, str) or (isinstance(value, dict) and "content" in value and "__type" in value)
        if field.endswith("_token") and field not in SPECIAL and value and is_token:
            yield token_of(folder, field, value)


def token_of(folder: Path, field: str, value: object) -> "AddedToken":
    """A token that a file gives as its text, or as an object with its flags."""
    from tokenizers import AddedToken

    if isinstance(value, str):
        return AddedToken(value, normalized=False, special=True)
    hints = dict.fromkeys(_FLAGS, bool | None)
    fields = check_object(f"{folder}: {field}.", check_type(field, value, dict), {"content": str | None, **hints})
    content = fields.get("content")
    if not content:
        raise ValueError(f"{field}={value!r} has no content")
    flags = {name: fields[name] for name in _FLAGS if fields.get(name) is not None}
    is_special = flags.pop("special", not field.startswith("added_tokens_decoder"))
    return AddedToken(content, special=is_special, **{"normalized": not is_special} | flags)
