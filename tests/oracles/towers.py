"""A tower of texts and a tower of images by numpy, one text or image at a time and in float64."""

import math
from typing import Any

import jax
import numpy as np

from oracles import heads, images, output, softmax

ACTIVATIONS = {
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def linear(layer: Any, x: np.ndarray) -> np.ndarray:
    """x W + b."""
    return x @ layer.kernel + (0 if layer.bias is None else layer.bias)


def norm(layer: Any, x: np.ndarray, eps: float) -> np.ndarray:
    """A layer norm."""
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + eps) * layer.scale + layer.bias


def attention(params: Any, x: np.ndarray, memory: np.ndarray, causal: bool) -> np.ndarray:
    """x [T,D] over memory [S,D]."""
    q, (_, k, v) = heads(params, x[None])[0][0], (rows[0] for rows in heads(params, memory[None]))
    scores = np.einsum("tkgh,skgh->kgts", q, k) * q.shape[-1] ** -0.5
    if causal:
        scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
    return output(params, np.einsum("kgts,skgh->tkgh", softmax(scores), v)[None])[0]


def feed_forward(layer: Any, config: Any, x: np.ndarray) -> np.ndarray:
    """Down of the activation of up."""
    return linear(layer.down, ACTIVATIONS[config.activation](linear(layer.up, x)))


def states(encoder: Any, config: Any, x: np.ndarray, causal: bool) -> np.ndarray:
    """x [T,D] through blocks that normalize what they read, and the last norm."""
    (stacked,) = encoder.layers.period
    for index in range(config.layers):
        block = jax.tree.map(lambda leaf, index=index: leaf[index], stacked)
        read = norm(block.residual.mixer, x, config.norm_eps)
        x = x + attention(block.mixer, read, read, causal)
        x = x + feed_forward(block.feed_forward, config, norm(block.residual.feed_forward, x, config.norm_eps))
    return norm(encoder.norm, x, config.norm_eps)


def unit(projection: Any, x: np.ndarray) -> np.ndarray:
    """x [D] in the shared space, of length 1."""
    y = x if projection is None else linear(projection, x)
    return y / math.sqrt((y**2).sum())


def text_vector(params: Any, config: Any, tokens: list[int]) -> np.ndarray:
    """The last token of a text without padding."""
    embed = params.text.embed
    x = np.stack([embed.tokens[token] + embed.positions[place] for place, token in enumerate(tokens)])
    return unit(params.text_projection, states(params.text, config, x, config.head.causal)[-1])


def image_vector(params: Any, config: Any, pixels: np.ndarray) -> np.ndarray:
    """[CLS], or what a query gathers from the patches of an image."""
    embed = params.image.embed
    x = images.embedded(embed, config.input.patch, pixels[None])[0] + embed.positions
    hidden = states(params.image, config, x if embed.norm is None else norm(embed.norm, x, config.norm_eps), False)
    pooler = params.image_pooler
    if pooler is None:
        return unit(params.image_projection, hidden[0])
    y = attention(pooler.attention, pooler.query[None], hidden, False)
    y = y + feed_forward(pooler.feed_forward, config, norm(pooler.norm, y, config.norm_eps))
    return unit(params.image_projection, y[0])
