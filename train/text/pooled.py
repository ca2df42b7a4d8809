"""States of tokens -> the vector of a text, by the poolings of a folder, without the tokens of a prompt."""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

import tfm
from tfm.sharding import fold_rows
from train import UserError
from train.text import control_tokens
from train.text.sentence_transformers import Modules
from train.text.special import AnyTokenizer


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
    states = hidden.astype(jnp.float32)
    vectors = {pool: tfm.pool(states, is_pooled, pool) for pool in pools}
    if "weighted_mean" in vectors and unpooled:  # a token keeps the weight of its place in the text
        half = (fold_rows(is_pooled.sum(-1, keepdims=True)) + 1) / 2
        moved = half * vectors["weighted_mean"] + unpooled * tfm.pool(states, is_pooled, "mean")
        vectors["weighted_mean"] = moved / (half + unpooled)
    return jnp.concatenate([vectors[pool] for pool in pools], axis=1)


def unpooled_tokens(modules: Modules, tokenizer: AnyTokenizer, prefix: int, suffix: int = 1) -> int:
    """The tokens before a text that are not pooled: `prefix` special ones and those of the prompt, or none; those of a
    prompt that is cut before the `suffix`, too. Raises UserError for a prompt with a control token that would be read
    as text."""
    if control_tokens.mode() != "keep" and (counts := control_tokens.count(tokenizer, [modules.prompt_text])):
        raise UserError(
            f"{modules.source}: prompts.{modules.prompt} has the control token {next(iter(counts))}, which is read as "
            "text; say --data.control-tokens=keep, or --prompt= of another name"
        )
    if modules.pools_prompt or not modules.prompt_text:
        return 0
    count = prefix + len(tokenizer.encode(modules.prompt_text, add_special_tokens=False).ids)
    return count if modules.length is None else min(count, modules.length - suffix)
