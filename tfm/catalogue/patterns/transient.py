"""A window, and transient global tokens: keys of blocks (LongT5: Guo et al. 2022, section 3.1).

The key and the value of a block are those of the normalized sum of what its tokens bring to the layer. Nothing of it is
left for the next layer.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import Heads
from tfm.attention.bias import ScoreBias
from tfm.attention.project import SoftmaxCall, merge_heads, project, project_keys, with_positions
from tfm.catalogue.mixers.padding import refuse_decoders, valid_tokens
from tfm.catalogue.options.patterns import Transient
from tfm.catalogue.positions.t5 import T5Bias
from tfm.config.model import Config
from tfm.interfaces import LayerCall, MixerOutput, Score, refuse
from tfm.masks.by_example import padding
from tfm.masks.distance import window
from tfm.masks.mask import Mask
from tfm.norms import Norm, norm, norm_specs
from tfm.patterns import Pattern
from tfm.scopes import SUMS
from tfm.sharding import named_sharding, replicate_length, spec_of, take_positions


def mask(options: Transient, config: Config, is_causal: bool) -> Mask:
    """The window."""
    return window(options.radius, options.radius)


def specs(options: Transient, config: Config) -> Norm:
    """The norm of sums."""
    return norm_specs(config)


def forward(call: SoftmaxCall, x: Array, score: Score) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    context = call.prepared.context
    pattern_call = LayerCall(call.options.pattern, call.config, call.params.pattern, context, call.key)
    heads = extend(pattern_call, x, with_positions(call, *project(call, x), score), partial(project_keys, call))
    y, output = call.prepared.path(call, heads)
    return merge_heads(call.params, y), output


def extend(call: LayerCall, x: Array, heads: Heads, project: Callable[[Array], tuple[Array, Array]]) -> Heads:
    """Heads with the keys of blocks behind those of tokens; `project` makes keys and values of states [B,S,D].

    Raises VariantError for decoders, for masks of other kinds, and for positions that do more than add to scores.
    """
    options, context, tokens = call.options, call.prepared, x.shape[1]
    refuse_decoders(options, context, "pattern, such as mixer.pattern=sliding")
    bias, count = heads.bias, tokens // options.block
    if bias is not None and (not bias.blockwise or bias.adds_values or type(bias).apply is not ScoreBias.apply):
        refuse(options, "adds keys that have no distance", "try position=t5 or position=learned")
    valid = valid_tokens(options, context)
    valid = jnp.ones((1, tokens), bool) if valid is None else replicate_length(valid)
    blocks = block_of_tokens(valid, options.block)
    sums = block_sums(replicate_length(x), jnp.where(valid, blocks, -1), options.block)
    k, v = project(norm(call.config, call.params, sums).astype(x.dtype))
    exists = jnp.arange(count)[None] <= jnp.where(valid, blocks, -1).max(1, keepdims=True)
    block_bias = None if bias is None else BlockBias(_with_row(bias), _with_row(_of_blocks(bias)), blocks, tokens)
    return Heads(
        q=heads.q,
        k=jnp.concatenate([replicate_length(heads.k), k], axis=1),
        v=jnp.concatenate([replicate_length(heads.v), v], axis=1),
        mask=Extended(mask(options, call.config, False), tokens) & padding(jnp.concatenate([valid, exists], axis=1)),
        bias=block_bias,
    )


def _of_blocks(bias: ScoreBias) -> ScoreBias | None:
    """The bias of positions for blocks at the places of blocks; None for a bias without a table for them."""
    if not isinstance(bias, T5Bias) or bias.blocks is None:
        return None
    return replace(bias, table=bias.blocks, blocks=None)


def block_of_tokens(valid: Array, block: int) -> Array:
    """bool [B or 1,T], which places hold tokens -> int32 [B or 1,T], the block of each place, at most the last one
    whose last place holds a token; -1 where there is none."""
    places = jnp.arange(valid.shape[1])[None]
    full = (valid & (places % block == block - 1)).sum(1, keepdims=True)
    return jnp.minimum(places // block, full - 1)


@jax.named_scope(SUMS)
def block_sums(x: Array, blocks: Array, block: int) -> Array:
    """x [B,T,D] and the block of each token [B or 1,T], -1 for none -> float32 [B, T // block, D]."""
    count = x.shape[1] // block
    x = jnp.where((blocks >= 0)[:, :, None], x.astype(jnp.float32), 0)
    by_place = jnp.pad(x, ((0, 0), (0, -x.shape[1] % block), (0, 0)))
    rows, _, columns = spec_of(x)
    shape = (x.shape[0], by_place.shape[1] // block, block, x.shape[2])
    by_place = jnp.reshape(by_place, shape, out_sharding=named_sharding(x, x, rows, None, None, columns)).sum(2)
    from_here = jnp.flip(jnp.cumsum(jnp.flip(by_place, 1), 1), 1)[:, :count]
    is_last = jnp.arange(count)[None] == blocks.max(1, keepdims=True)
    return jnp.where(is_last[:, :, None], from_here, by_place[:, :count])


@struct.dataclass
class Extended(Mask):
    """A static mask of the first `tokens` keys; all queries see the keys behind them."""

    mask: Mask
    tokens: int = struct.field(pytree_node=False)

    def __call__(self, i, j):
        return self.mask(i, jnp.minimum(j, self.tokens - 1)) | (j >= self.tokens)[:, None, :]

    def between(self, first_i, last_i, first_j, last_j):
        last = self.tokens - 1
        return self.mask.between(first_i, last_i, first_j, last_j.clip(None, last)) | (last_j > last)


@struct.dataclass
class BlockBias(ScoreBias):
    """The bias of tokens for the first `tokens` keys, and that of blocks for the keys behind them; 0 where one is None.

    tokens_bias, blocks_bias: their arrays have a first axis of size 1
    blocks: int32 [B or 1,T], the block of each token
    """

    tokens_bias: ScoreBias
    blocks_bias: ScoreBias | None
    blocks: Array
    tokens: int = struct.field(pytree_node=False)

    batched = True

    def __call__(self, i, j):
        of_tokens = _without_row(self.tokens_bias)(i, jnp.minimum(j, self.tokens - 1))
        is_token = (j < self.tokens)[:, None, None, None, :]
        if self.blocks_bias is None:
            return jnp.where(is_token, of_tokens, 0)
        of_blocks = _without_row(self.blocks_bias)(take_positions(self.blocks, i), jnp.maximum(j - self.tokens, 0))
        return jnp.where(is_token, of_tokens, of_blocks)


def _with_row(tree: Any) -> Any:
    """A tree whose arrays get a first axis of size 1."""
    return jax.tree.map(lambda leaf: leaf[None], tree)


def _without_row(tree: Any) -> Any:
    """The inverse."""
    return jax.tree.map(lambda leaf: leaf[0], tree)


PATTERN = Pattern(mask, specs=specs, forward=forward)
