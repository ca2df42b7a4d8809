"""Sparse Sinkhorn attention (Tay et al. 2020): blocks of tokens attend to themselves and to a mixture of other blocks.

A linear map of the sum of a block scores all blocks. Scores become a matrix whose rows and columns sum to 1, nearly a
permutation (section 3.1); it mixes the blocks of keys and values, and a block reads its row beside its own tokens.

A block of a decoder is scored by the sum of the text up to its first token, and mixes earlier blocks only (section
3.3). Columns are divided by the sum of their rows so far, so that no block depends on a later one.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.context import AttentionContext, LayerCall, MixerOutput, refuse
from tfm.attention.project import Attention, attention_specs, keys_values, merge_heads, queries
from tfm.config.mixers.clustered import Sinkhorn
from tfm.config.model import Config
from tfm.masks.mask import MASK_VALUE
from tfm.mixers import Mixer
from tfm.mixers.clustered import Prepared
from tfm.mixers.clustered import prepare as prepare_rows
from tfm.ops import Linear, dropout, linear, split
from tfm.params import bias_spec, weight_spec
from tfm.scopes import SUMS
from tfm.sharding import named_sharding, replicate_length, spec_of

# Added to scores of blocks before their logarithm.
EPS = 1e-6


@struct.dataclass
class SinkhornParams:
    """Projections to heads and back, and the map from a block to scores of all blocks [D,K,b]."""

    attention: Attention
    blocks: Linear


def specs(options: Sinkhorn, config: Config) -> SinkhornParams:
    """The spec tree of one layer."""
    count = -(-config.sizes["P"] // options.block)
    blocks = Linear(weight_spec(config, "DKb", b=count), bias_spec(config, "Kb", b=count))
    return SinkhornParams(attention_specs(config), blocks)


def prepare(options: Sinkhorn, config: Config, context: AttentionContext) -> Prepared:
    """The tokens of the pass. Raises ValueError for masks of other kinds than padding."""
    prepared = prepare_rows(options, config, context)
    if prepared.rows.segments is not None:
        refuse(options, "cuts the text of a row into blocks", "put every text into a row of its own")
    return prepared


def forward(call: LayerCall, x: Array, score: Any, state: None) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    layer, config, options = call.params, call.config, call.options
    context, rows = call.prepared
    noise_key, drop_key = split(call.key, 2)
    k, v = keys_values(layer.attention, config, x)
    q, k, bias = score(queries(layer.attention, config, x), k, layer.attention)
    if bias is not None:
        refuse(options, "does not score all pairs of tokens", "try position=learned or position=rotary")
    size = min(options.block, x.shape[1])
    k, v, text = (jnp.where(jnp.expand_dims(rows.valid, range(2, y.ndim)), replicate_length(y), 0) for y in (k, v, x))
    q_blocks, k_blocks, v_blocks, valid = (cut(y, size) for y in (replicate_length(q), k, v, rows.valid))
    blocks = Blocks(q_blocks, k_blocks, v_blocks, valid, context.causal)
    sums = sums_of_blocks(cut(text, size), context.causal)
    scores = linear(layer.blocks, "BnD,DKb->BnKb", sums)[..., : sums.shape[1]]
    mixture = mixtures(jnp.moveaxis(scores, 2, 1).astype(jnp.float32), blocks, options, noise_key)
    heads = attend_to_blocks(blocks, mixture, config.attn_rate, drop_key)
    return merge_heads(layer.attention, heads[:, : x.shape[1]]), MixerOutput()


class Blocks(NamedTuple):
    """n blocks of b tokens: q [B,n,b,K,G,H], k and v [B,n,b,K,H], which of them are tokens [B or 1,n,b], and whether no
    token sees a later one."""

    q: Array
    k: Array
    v: Array
    valid: Array
    causal: bool

    @property
    def allowed(self) -> Array:
        """Whether a block may mix another one: bool [B or 1,n,n]."""
        is_text = self.valid.any(2)
        allowed = is_text[:, :, None] & is_text[:, None]
        return allowed & jnp.tril(jnp.ones(allowed.shape[1:], bool), -1)[None] if self.causal else allowed


def cut(x: Array, size: int) -> Array:
    """[B,T,...] -> [B,n,size,...], with zeros behind the end."""
    x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % size), *((0, 0),) * (x.ndim - 2)))
    return x.reshape(x.shape[0], -1, size, *x.shape[2:])


@jax.named_scope(SUMS)
def sums_of_blocks(text: Array, causal: bool) -> Array:
    """text [B,n,b,D] -> [B,n,D]: the sum of each block; with causality, that of the text up to its first token."""
    rows = text.astype(jnp.float32)
    sums = rows.sum(2)
    if causal:
        sums = jnp.pad(jnp.cumsum(sums, axis=1)[:, :-1], ((0, 0), (1, 0), (0, 0))) + rows[:, :, 0]
    return sums.astype(text.dtype)


def mixtures(scores: Array, blocks: Blocks, options: Sinkhorn, key: Array | None = None) -> Array:
    """float32 scores [B,K,n,n] of blocks for blocks -> [B,K,n,n]: how much of the second a block mixes.

    Sinkhorn's normalization of exp(log(relu(scores)) / temperature) (section 3.1), its padding and, with causality,
    its upper triangle left out. A key adds Gumbel noise.
    """
    allowed = blocks.allowed[:, None]
    logits = jnp.log(jax.nn.relu(scores) + EPS)
    if key is not None:
        sharding = named_sharding(logits, logits, *spec_of(logits))
        uniform = jax.random.uniform(key, logits.shape, jnp.float32, 1e-6, 1 - 1e-6, out_sharding=sharding)
        logits = logits - jnp.log(-jnp.log(uniform))
    logits = jnp.where(allowed, logits / options.temperature, MASK_VALUE)
    for _ in range(options.iterations):
        logits = jnp.where(allowed, logits - jax.nn.logsumexp(logits, axis=3, keepdims=True), MASK_VALUE)
        columns = jax.lax.cumlogsumexp(logits, axis=2) if blocks.causal else jax.nn.logsumexp(logits, 2, keepdims=True)
        logits = jnp.where(allowed, logits - columns, MASK_VALUE)
    return jnp.exp(logits)


def attend_to_blocks(blocks: Blocks, mixture: Array, rate: float = 0.0, key: Array | None = None) -> Array:
    """Blocks and mixtures [B,K,n,n] -> [B,n*b,K,G,H]: attention of a block to its mixture and to itself; softmax in
    float32. `rate` and `key` drop attention weights."""
    k, v = (
        jnp.concatenate([jnp.einsum("BKnm,BmbKH->BnbKH", mixture.astype(rows.dtype), rows), rows], axis=2)
        for rows in (blocks.k, blocks.v)
    )
    q, size = blocks.q * blocks.q.shape[-1] ** -0.5, blocks.q.shape[2]
    scores = jnp.einsum("BnqKGH,BnsKH->BKGnqs", q, k, preferred_element_type=jnp.float32)
    mixed = (blocks.allowed[..., None] & blocks.valid[:, None]).any(2)
    own = blocks.valid[:, :, None] & jnp.tril(jnp.ones((size, size), bool), 0 if blocks.causal else size)[None, None]
    seen = jnp.concatenate([jnp.broadcast_to(mixed[:, :, None], own.shape), own], axis=-1)[:, None, None]
    weights = dropout(jax.nn.softmax(jnp.where(seen, scores, MASK_VALUE), axis=-1), rate, key)
    heads = jnp.einsum("BKGnqs,BnsKH->BnqKGH", weights.astype(v.dtype), v)
    return heads.reshape(heads.shape[0], -1, *heads.shape[3:])


MIXER = Mixer(specs, prepare, forward)
