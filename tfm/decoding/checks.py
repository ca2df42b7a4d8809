"""What generation and beam search refuse: prompts, stop tokens and strategies that do not fit the model."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfm.config.model import Config


def check_prompts(config: Config, prompts: Sequence[Sequence[int]], max_new_tokens: int, stop: Sequence[int] = ()):
    """Raises ValueError for empty prompts, unknown tokens, in `stop` too, and a count that is no integer from 1 on."""
    if not len(prompts) or not all(map(np.ndim, prompts)) or not all(map(len, prompts)):
        raise ValueError("prompts must hold at least one prompt, and every prompt at least one token")
    for prompt in prompts:
        _check_vocabulary("prompts have", prompt, config)
    _check_vocabulary("stop has", stop, config)
    if not isinstance(max_new_tokens, int | np.integer) or max_new_tokens < 1:
        raise ValueError(f"max_new_tokens={max_new_tokens} must be at least 1, and an integer")


def limits_of(prompts: Sequence[Sequence[int]], max_new_tokens: int | Sequence[int]) -> list[int]:
    """The most tokens to add to each prompt: one number for all, or one for each. Raises ValueError for others."""
    limits = [*max_new_tokens] if isinstance(max_new_tokens, Sequence) else [max_new_tokens] * len(prompts)
    for limit in limits:
        if not isinstance(limit, int | np.integer) or limit < 1:
            raise ValueError(f"max_new_tokens={limit} must be at least 1, and an integer")
    if len(limits) != len(prompts):
        raise ValueError(f"max_new_tokens has {len(limits)} numbers for {len(prompts)} prompts; give one for each")
    return limits


def _check_vocabulary(owner: str, tokens: Sequence[int], config: Config):
    """Raises ValueError for a token that is no integer, or not in the vocabulary."""
    ids = np.asarray(tokens)
    if len(ids) and ids.dtype.kind not in "iu":
        raise ValueError(f"{owner} tokens {ids.tolist()}, which must be integers")
    unknown = ids[(ids < 0) | (ids >= config.vocab)]
    if len(unknown):
        raise ValueError(f"{owner} token {unknown[0]}, which is not in the vocabulary of {config.vocab} tokens")


def check_strategy(strategy: Any, classes: tuple[type, ...]):
    """Raises ValueError for a strategy of another class, or with an option outside its range."""
    if type(strategy) not in classes:
        raise ValueError(f"strategy={strategy} must be {' or '.join(cls.__name__ for cls in classes)}")
    strategy.check()


def check_fits(config: Config, prompts: Sequence[Sequence[int]], max_new_tokens: int | Sequence[int], remedy: str):
    """Raises ValueError where prompts and new tokens exceed the positions of the model; the last one is never read."""
    limit = config.max_length
    for prompt, count in zip(prompts, limits_of(prompts, max_new_tokens), strict=True):
        if limit is not None and len(prompt) + count - 1 > limit:
            raise ValueError(
                f"a prompt of {len(prompt)} tokens and max_new_tokens={count} exceed the {limit} positions of the "
                f"model; lower max_new_tokens, {remedy}"
            )
