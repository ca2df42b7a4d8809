"""Sentinels: tokens that stand for spans of a text that are left out, as T5 names them."""

from collections.abc import Sequence

from train import UserError
from train.text.special import AnyTokenizer


def names(count: int) -> list[str]:
    """The sentinels in the order in which they stand in a text."""
    return [f"<extra_id_{index}>" for index in range(count)]


def add(tokenizer: AnyTokenizer, count: int) -> None:
    """Adds those that the tokenizer lacks behind its last token, the first sentinel last: ids count down from it."""
    tokenizer.add_special_tokens([name for name in reversed(names(count)) if tokenizer.token_to_id(name) is None])


def ids_of(tokenizer: AnyTokenizer, count: int) -> Sequence[int]:
    """The ids of the first `count` sentinels. Raises UserError where the tokenizer lacks one."""
    ids = [tokenizer.token_to_id(name) for name in names(count)]
    if None in ids:
        raise UserError(
            f"the tokenizer has {ids.index(None)} sentinels, <extra_id_0> and so on, and rows need {count}; make a "
            f"tokenizer with --tokenizer.sentinels={count}, or take longer spans or shorter rows"
        )
    return [index for index in ids if index is not None]
