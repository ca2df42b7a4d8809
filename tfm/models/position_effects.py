"""What positions do in a model, as arrays to look at (Wang & Chen 2020, section 4)."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tfm.attention.attend import attention_scores, biased_scores
from tfm.attention.context import AttentionContext, LayerCall
from tfm.attention.project import Attention, keys_values, queries
from tfm.config.model import Config, Kind
from tfm.inputs.tokens import embed
from tfm.layers.block import Block
from tfm.layers.stack import unstack
from tfm.models.encoder import Encoder
from tfm.ops import standardized
from tfm.positions import position_of

# Tokens whose scores are averaged.
CONTENTS = 32


def position_similarity(model: Encoder, config: Config, length: int) -> np.ndarray | None:
    """Cosine similarity [T,T] of what positions 0 to T-1 add to the embeddings; None where they add nothing."""
    x = jnp.zeros((1, length, config.sizes[config.embed_axis]))
    embed_positions = position_of(config.position).embed
    rows = np.asarray(
        embed_positions(model.embed.positions, config.position, config, x, jnp.arange(length)[None])[0], np.float64
    )
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    if not lengths.any():
        return None
    rows = rows / np.maximum(lengths, np.finfo(np.float64).tiny)
    return rows @ rows.T


def position_scores(model: Encoder, config: Config, length: int, causal: bool = False) -> np.ndarray | None:
    """What positions add to the scores [R,T,T] of two equal tokens at positions i and j, in every head of every layer.

    It is the mean over tokens of the vocabulary, as the embeddings have them, and has no mean over the pairs that are
    seen: softmax ignores it. Later keys of a causal model are NaN. None where positions do nothing to scores, or
    where no layer has queries and keys.
    """
    ids = jnp.asarray(np.linspace(0, config.vocab - 1, CONTENTS), jnp.int32)
    tokens = jnp.broadcast_to(ids[:, None], (CONTENTS, length))
    x = standardized(embed(model.embed, config, tokens).astype(jnp.float32), config.norm_eps).astype(config.dtype)
    shared = dict(zip(config.positions, model.positions, strict=True))
    layers = [
        _layer_scores(kind, config, causal, layer, shared[kind.position], x) for kind, layer in _layers(model, config)
    ]
    scores = [np.asarray(layer, np.float64).reshape(-1, length, length) for layer in layers if layer is not None]
    if not scores:
        return None
    seen = np.tril(np.ones((length, length), bool)) if causal else np.ones((length, length), bool)
    heads = np.concatenate(scores)
    return np.where(seen, heads - heads[:, seen].mean(-1)[:, None, None], np.nan)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _layer_scores(kind: Kind, config: Config, causal: bool, layer: Block, shared: Any, x: Array) -> Array | None:
    """float32 [K,G,T,T] of one layer, for equal tokens x [B,T,D]."""
    projections = layer.mixer if isinstance(layer.mixer, Attention) else getattr(layer.mixer, "attention", None)
    if projections is None:
        return None
    position, i = position_of(kind.position), jnp.arange(x.shape[1])[None]
    context = AttentionContext(jnp.broadcast_to(i, x.shape[:2]), causal=causal)
    q, k = queries(projections, config, x), keys_values(projections, config, x)[0]
    prepared = position.prepare(shared, kind.position, config, context)
    call = LayerCall(kind.position, config, layer.position, prepared, None)
    positioned_q, positioned_k, bias = position.score(call, q, k, projections)
    if bias is None and positioned_q is q and positioned_k is k:
        return None
    return (biased_scores(positioned_q, positioned_k, bias, i, i) - attention_scores(q, k)).mean(0)


def _layers(model: Encoder, config: Config) -> Iterator[tuple[Kind, Block]]:
    """The kind and the parameters of every layer in order; shared parameters once."""
    plan = config.layer_plan
    yield from zip(plan.prefix, model.layers.prefix, strict=True)
    rows = 1 if config.share_layers else plan.times
    for trees in zip(*(unstack(tree, rows) for tree in model.layers.period), strict=True):
        yield from zip(plan.period, trees, strict=True)
    yield from zip(plan.tail, model.layers.tail, strict=True)
