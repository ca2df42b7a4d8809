"""What positions do in a model, as arrays to look at (Wang & Chen 2020, section 4)."""

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tfm.attention.attend import attention_scores, biased_scores
from tfm.attention.project import Attention, keys_values, queries
from tfm.config.model import Config, Kind
from tfm.interfaces import AttentionContext, LayerCall
from tfm.models.encoder import Encoder
from tfm.norms import standardized
from tfm.tables.inputs import INPUTS, embed
from tfm.tables.positions import POSITIONS

# Tokens, or patches, whose scores are averaged.
CONTENTS = 32


def position_similarity(model: Encoder, config: Config, length: int) -> np.ndarray | None:
    """Cosine similarity [T,T] of what positions 0 to T-1 add to the embeddings; None where they add nothing.

    Wang & Chen 2020."""
    x = jnp.zeros((1, length, config.sizes[config.embed_axis]))
    embed_positions = POSITIONS[config.position.name].embed
    rows = np.asarray(
        embed_positions(LayerCall(config.position, config, model.embed.positions), x, jnp.arange(length)[None])[0],
        np.float64,
    )
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    if not lengths.any():
        return None
    rows = rows / np.maximum(lengths, np.finfo(np.float64).tiny)
    return rows @ rows.T


def position_scores(model: Encoder, config: Config, length: int, causal: bool = False) -> np.ndarray | None:
    """What positions add to the scores [R,T,T] of two equal tokens at positions i and j, in every head of every layer.

    It is the mean over tokens of the vocabulary, or over patches, as the embeddings have them, and has no mean over the
    pairs that are seen: softmax ignores it. Later keys of a causal model are NaN. Layers without softmax attention are
    left out; None where positions do nothing to scores.
    """
    layers = [_layer_scores(kind, config, length, causal, model, place, row) for kind, place, row in _layers(config)]
    scores = [np.asarray(layer, np.float64).reshape(-1, length, length) for layer in layers if layer is not None]
    if not scores:
        return None
    seen = np.tril(np.ones((length, length), bool)) if causal else np.ones((length, length), bool)
    heads = np.concatenate(scores)
    return np.where(seen, heads - heads[:, seen].mean(-1)[:, None, None], np.nan)


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 5))
def _layer_scores(
    kind: Kind, config: Config, length: int, causal: bool, model: Encoder, place: tuple[str, int], row: Array | None
) -> Array | None:
    """float32 [K,G,T,T] of one layer: its place is a part of the stack and a tree in it, of which it is a row."""
    part, index = place
    layer = getattr(model.layers, part)[index]
    if row is not None:
        layer = jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, row, keepdims=False), layer)
    if not isinstance(layer.mixer, Attention):
        return None
    position, i = POSITIONS[kind.position.name], jnp.arange(length)[None]
    x = _contents(model, config, length)
    context = AttentionContext(jnp.broadcast_to(i, x.shape[:2]), causal=causal)
    q, k = queries(layer.mixer, config, x), keys_values(layer.mixer, config, x)[0]
    shared = model.positions[config.positions.index(kind.position)]
    prepared = position.prepare(LayerCall(kind.position, config, shared), context)
    call = LayerCall(kind.position, config, layer.position, prepared)
    positioned_q, positioned_k, bias = position.score(call, q, k, layer.mixer)
    if bias is None and positioned_q is q and positioned_k is k:
        return None
    return (biased_scores(positioned_q, positioned_k, bias, i, i) - attention_scores(q, k)).mean(0)


def _contents(model: Encoder, config: Config, length: int) -> Array:
    """Tokens from all over the vocabulary, or random patches, as a layer reads them, each at all positions: [B,T,D]."""
    contents = INPUTS[config.input.name].contents
    assert contents is not None, f"a model does not begin with input={config.input.name}"
    x = embed(model.embed, config, contents(config.input, config, CONTENTS, length))[:, :length]
    return standardized(x.astype(jnp.float32), config.norm_eps).astype(config.dtype)


def _layers(config: Config) -> Iterator[tuple[Kind, tuple[str, int], Array | None]]:
    """The kind of every layer in order, and where its parameters are; shared parameters once."""
    plan = config.layer_plan
    yield from ((kind, ("prefix", index), None) for index, kind in enumerate(plan.prefix))
    for row in range(1 if config.share_layers else plan.times):
        yield from ((kind, ("period", index), jnp.int32(row)) for index, kind in enumerate(plan.period))
    yield from ((kind, ("tail", index), None) for index, kind in enumerate(plan.tail))
