"""States of tokens -> the vector of a text, by the poolings of a folder, without the tokens of a prompt."""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

import tfm
from train.text.sentence_transformers import Modules


def pooled(
    hidden: Array, valid: Array, pools: Sequence[str], unpooled: int = 0, positions: Array | None = None
) -> Array:
    """hidden [B,T,D], valid bool [B,T] -> float32 [B,D], D for each pooling; the first `unpooled` tokens are left out.

    Of rows of n texts it is [B*n,D], a vector of each: valid is bool [B,n,T] then, the tokens of every text, which have
    `positions` [B,T].
    """
    texts = valid if valid.ndim == 3 else valid[:, None]
    places = jnp.arange(hidden.shape[1])[None] if positions is None else positions
    is_pooled = texts & (places >= unpooled)[:, None]
    return jnp.concatenate([tfm.pool(hidden.astype(jnp.float32), is_pooled, pool) for pool in pools], axis=1)


def unpooled_tokens(modules: Modules, tokenizer, prefix: int) -> int:
    """The tokens before a text that are not pooled: `prefix` special ones and those of the prompt, or none."""
    if modules.pools_prompt or not modules.prompt_text:
        return 0
    return prefix + len(tokenizer.encode(modules.prompt_text, add_special_tokens=False).ids)
