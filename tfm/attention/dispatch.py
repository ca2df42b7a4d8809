"""Attention by the kernel that fits: the one place that calls kernels."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
from jax import Array

from tfm.attention.attend import attend
from tfm.attention.bias import ScoreBias
from tfm.attention.kernels.choice import Choice, choose_kernel, choose_once, chunked, cudnn, splash
from tfm.attention.scores import attend_in_blocks
from tfm.config.model import Config
from tfm.masks.mask import Mask
from tfm.masks.pairs import visible_pairs


def by_blocks(
    q: Array,
    k: Array,
    v: Array,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    rate: float = 0.0,
    key: Array | None = None,
) -> Array:
    """`tfm.attend`, a block of queries at a time."""
    return attend_in_blocks(None, (q, k, v), mask, bias, rate, key)


# What `choose_kernel` and `choose_once` choose from.
KERNELS: dict[str, Callable[..., Array]] = {
    "einsum": attend,
    "chunked": chunked,
    "cudnn": cudnn,
    "splash": splash,
    "blocks": by_blocks,
}


def attend_with(
    config: Config,
    q: Array,
    k: Array,
    v: Array,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    key: Array | None = None,
) -> Array:
    """q [B,T,K,G,H], k and v [B,S,K,H] -> [B,T,K,G,H] by `config.kernel`; a key drops attention weights at
    `config.attn_rate`.

    The kernel, its reason and the part of the pairs that the mask leaves are the name of a scope in the program, where
    profiles and the trainer read them.
    """
    rate = config.attn_rate_with(key)
    choice = choose_kernel(q, k, mask, bias, rate, config.kernel)
    return _attend(choice, (q, k, v), mask, bias, rate, key)


def attend_once(
    config: Config,
    q: Array,
    k: Array,
    v: Array,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    key: Array | None = None,
) -> Array:
    """`attend_with` for a pass that runs once, such as reading a prompt: no fused kernel is compiled for it, and many
    scores are not computed at once."""
    rate = config.attn_rate_with(key)
    return _attend(choose_once(q, k, mask, bias, rate), (q, k, v), mask, bias, rate, key)


def attend_scores(
    score: str,
    score_fn: Callable[[Array, Array], Array],
    operands: tuple[Array, Array, Array],
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    rate: float = 0.0,
    key: Array | None = None,
) -> Array:
    """`attend_in_blocks` for scores that no kernel computes, under the name of these."""
    q, k, _ = operands
    with attention_scope(Choice("blocks", f"{score} scores"), mask, q.shape[1], k.shape[1]):
        return attend_in_blocks(score_fn, operands, mask, bias, rate, key)


def _attend(
    choice: Choice,
    operands: tuple[Array, Array, Array],
    mask: Mask | None,
    bias: ScoreBias | None,
    rate: float,
    key: Array | None,
) -> Array:
    """Attention by the chosen kernel."""
    dropout: dict[str, Any] = {"rate": rate, "key": key} if rate else {}
    with attention_scope(choice, mask, operands[0].shape[1], operands[1].shape[1]):
        return KERNELS[choice.name](*operands, mask, bias, **dropout)


def attention_scope(choice: Choice, mask: Mask | None, queries: int, keys: int) -> AbstractContextManager[Any]:
    """The scope of attention: its kernel, the reason, and what part of the pairs the mask leaves, if not all."""
    visible, pairs = visible_pairs(mask, queries, keys)
    part = f"[{visible}/{pairs} pairs]" if visible < pairs else ""
    return jax.named_scope(f"attention[{choice.name}: {choice.reason}]{part}")
