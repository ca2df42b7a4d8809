"""Control tokens that stand in a text as words, such as [MASK] or </s>: they are text, unless a run says otherwise."""

import contextlib
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from train import UserError
from train.text.special import AnyTokenizer, ConfiguredTokenizer, special_tokens

if TYPE_CHECKING:
    from tokenizers import Encoding

# How the texts of this command are read: --data.control-tokens.
_mode: ContextVar[str] = ContextVar("control_tokens", default="text")
# What stands in the texts that this command has read, and how often.
found_so_far: Counter[str] = Counter()


@contextlib.contextmanager
def reading(mode: str) -> Iterator[None]:
    """Reads control tokens in texts as `mode` says: text | error | keep."""
    before = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(before)


def mode() -> str:
    """How control tokens in texts are read now."""
    return _mode.get()


def encode(tokenizer: AnyTokenizer, texts: Sequence[Any], offsets: bool = True, **options: bool) -> "list[Encoding]":
    """Texts of documents, sentences or labelled rows as tokens, without those that stand around a text.

    A text is a string, or with is_pretokenized=True a list of words. Without `offsets` the places of tokens in the text
    are 0 (M63). Raises UserError where a text has a control token and the mode is "error".
    """
    check(tokenizer, texts)
    before = tokenizer.encode_special_tokens
    _set_literal(tokenizer, mode() != "keep")
    try:
        encode_batch = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast
        return encode_batch(list(texts), add_special_tokens=False, **options)
    finally:
        _set_literal(tokenizer, before)


def ids_of(tokenizer: AnyTokenizer, encodings: "Iterable[Encoding]") -> Iterator[np.ndarray]:
    """The ids of texts, int64. A vocabulary may have a control token as a word of its own: it is unknown in a text.

    What the vocabulary itself has for unknown words stays, also where the folder names no unk_token.
    """
    unk = special_tokens(tokenizer).unk
    unknown = (unk, tokenizer.token_to_id(getattr(getattr(tokenizer, "model", None), "unk_token", None) or ""))
    control = [token for token in _contents(tokenizer).values() if token not in unknown]
    is_control = np.zeros(max(control, default=0) + 2, bool)
    is_control[control] = mode() != "keep"
    for encoding in encodings:
        ids = np.frombuffer(array("I", encoding.ids), np.uint32).astype(np.int64)
        is_foreign = is_control[np.minimum(ids, len(is_control) - 1)]
        yield np.where(is_foreign, unk, ids) if is_foreign.any() else ids


def count(tokenizer: AnyTokenizer, texts: Iterable[Any]) -> Counter[str]:
    """How often each control token stands in the texts."""
    counts: Counter[str] = Counter()
    contents = _contents(tokenizer)
    if contents:
        pattern = re.compile("|".join(map(re.escape, sorted(contents, key=len, reverse=True))))
        for text in texts:
            for part in [text] if isinstance(text, str) else text:
                counts.update(pattern.findall(part))
    return counts


def check(tokenizer: AnyTokenizer, texts: Iterable[Any]) -> None:
    """Raises UserError where a text has a control token and the mode is "error"."""
    if mode() != "error":
        return
    for text in texts:
        if counts := count(tokenizer, [text]):
            raise UserError(
                f"--data.control-tokens=error: {next(iter(counts))} stands in the text {str(text)[:60]!r}; remove it, "
                "or take text to read it as text, or keep to read it as a control token"
            )


def report(tokenizer: AnyTokenizer, texts: Iterable[Any], name: str) -> str:
    """Counts control tokens in texts, and says so for the log; "" where there are none. `name` names the texts."""
    counts = count(tokenizer, texts)
    found_so_far.update(counts)
    if not counts:
        return ""
    token, meaning = counts.most_common(1)[0][0], "such" if mode() == "keep" else "text"
    times = f"{counts.total():,} times" if counts.total() > 1 else "once"
    place = f"control tokens such as {token} stand in the {name} {times}"
    return f"{place}; they are read as {meaning} (--data.control-tokens)"


def _contents(tokenizer: AnyTokenizer) -> dict[str, int]:
    """The special tokens that a text could spell, and their ids."""
    return {token.content: index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special}


def _set_literal(tokenizer: AnyTokenizer, literal: bool):
    """Whether special tokens that stand in a text are split as other text."""
    own = tokenizer.tokenizer if isinstance(tokenizer, ConfiguredTokenizer) else tokenizer
    own.encode_special_tokens = literal
