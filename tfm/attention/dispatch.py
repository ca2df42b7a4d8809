"""Attention by the kernel that fits: the one place that calls kernels."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array

from tfm.attention.attend import attend
from tfm.attention.bias import ScoreBias
from tfm.attention.kernels.choice import choose_kernel, chunked, cudnn, splash
from tfm.config.model import Config
from tfm.masks.mask import Mask

# What `choose_kernel` chooses from.
KERNELS: dict[str, Callable[..., Array]] = {"einsum": attend, "chunked": chunked, "cudnn": cudnn, "splash": splash}


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

    The kernel and its reason are the name of a scope in the program, where profiles and the trainer read them.
    """
    rate = config.attn_rate_with(key)
    dropout: dict[str, Any] = {"rate": rate, "key": key} if rate else {}
    choice = choose_kernel(q, k, mask, bias, rate, config.kernel)
    with jax.named_scope(f"attention[{choice.name}: {choice.reason}]"):
        return KERNELS[choice.name](q, k, v, mask, bias, **dropout)
