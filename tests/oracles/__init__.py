"""What mixers should compute, by numpy: (parameters of a mixer, x [B,T,D]) -> what it returns without a mask."""

from typing import Any

import numpy as np


def heads(params: Any, x: np.ndarray) -> list[np.ndarray]:
    """Queries, keys and values [B,T,K,G,H] of projections, keys and values repeated for each query head."""
    query, key, value = (
        np.einsum("btd,d...->bt...", x, np.asarray(linear.kernel)) + np.asarray(linear.bias)
        for linear in (params.query, params.key, params.value)
    )
    return [query, *(np.broadcast_to(rows[:, :, :, None], query.shape) for rows in (key, value))]


def softmax(scores: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def output(params: Any, heads: np.ndarray) -> np.ndarray:
    """heads [B,T,K,G,H] -> [B,T,D]."""
    return np.einsum("btkgh,kghd->btd", heads, np.asarray(params.output.kernel)) + np.asarray(params.output.bias)


def attention(params: Any, x: np.ndarray) -> np.ndarray:
    """Softmax attention."""
    q, k, v = heads(params, x)
    weights = softmax(np.einsum("btkgh,bskgh->bkgts", q, k) * q.shape[-1] ** -0.5)
    return output(params, np.einsum("bkgts,bskgh->btkgh", weights, v))
