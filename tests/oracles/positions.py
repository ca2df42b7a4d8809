"""What position schemes should compute, by loops over pairs in float64: the score of query vector q and key vector k of
head n = (kv, g) at positions i and j, not yet divided by the root of the head size, and what is added to the value."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def waves(position: float, width: int) -> np.ndarray:
    """sin(p / 10000^(2n / width)) and its cosine, interleaved."""
    angles = [position / 10000 ** (2 * (n // 2) / width) for n in range(width)]
    return np.array([math.cos(angle) if n % 2 else math.sin(angle) for n, angle in enumerate(angles)])


def clip(distance: int, limit: int) -> int:
    """A distance from 0 to 2 * limit."""
    return min(max(distance, -limit), limit) + limit


def attention(q, k, v, score: Callable, value: Callable, causal: bool) -> np.ndarray:
    """q [B,T,K,G,H], k and v [B,S,K,H] -> [B,T,K,G,H]; the queries stand at the last T of S positions."""
    y = np.zeros((*q.shape[:-1], v.shape[-1]))
    before = k.shape[1] - q.shape[1]
    for b, t, kv, g in np.ndindex(*q.shape[:-1]):
        i = before + t
        keys = range(i + 1 if causal else k.shape[1])
        powers = np.exp([score(q[b, t, kv, g], k[b, j, kv], i, j, (kv, g)) for j in keys])
        rows = [v[b, j, kv] + value(i, j) for j in keys]
        y[b, t, kv, g] = np.einsum("s,sh->h", powers / powers.sum(), np.array(rows))
    return y


def nothing(i: int, j: int) -> float:
    """No values."""
    return 0.0


def shaw(tables: Any, limit: int) -> tuple[Callable, Callable]:
    """Shaw et al. 2018, eq. 3 and 4."""

    def score(q, k, i, j, head):
        return q @ (k + tables.keys[clip(j - i, limit)]) / math.sqrt(len(q))

    values = tables.values
    return score, nothing if values is None else lambda i, j: values[clip(j - i, limit)]


def sinusoidal_relative(limit: int, width: int) -> tuple[Callable, Callable]:
    """Wei et al. 2019, eq. 4 and 5."""

    def vector(i, j):
        return waves(clip(j - i, limit) - limit, width)

    return lambda q, k, i, j, head: q @ (k + vector(i, j)) / math.sqrt(len(q)), vector


def huang(method: int, table: np.ndarray, limit: int) -> tuple[Callable, Callable]:
    """Huang et al. 2020, eq. 7 to 10."""

    def score(q, k, i, j, head):
        row = table[min(abs(j - i), limit) if method == 1 else clip(j - i, limit)]
        products = {1: lambda: q @ k * row[head], 2: lambda: q @ k * row[head], 3: lambda: (q * k * row).sum()}
        return products.get(method, lambda: q @ k + q @ row + k @ row)() / math.sqrt(len(q))

    return score, nothing


def transformer_xl(queries: Any, kernel: np.ndarray, width: int) -> tuple[Callable, Callable]:
    """Dai et al. 2019, section 3.3: four terms."""

    def score(q, k, i, j, head):
        interleaved = waves(i - j, width)
        r = np.concatenate([interleaved[0::2], interleaved[1::2]]) @ kernel[:, head[0]].reshape(width, -1)
        u, v = queries.content[head], queries.distance[head]
        return (q @ k + q @ r + u @ k + v @ r) / math.sqrt(len(q))

    return score, nothing


def tupe(params: Any, eps: float, buckets: Callable | None) -> tuple[Callable, Callable]:
    """Ke et al. 2021, eq. 7 to 10; `buckets`: distance -> bucket of the relative bias."""
    rows = params.table - params.table.mean(-1, keepdims=True)
    rows = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + eps) * params.norm.scale + params.norm.bias
    queries = np.einsum("pd,dkgh->pkgh", rows, params.query.kernel) + params.query.bias
    keys = np.einsum("pd,dkh->pkh", rows, params.key.kernel) + params.key.bias

    def score(q, k, i, j, head):
        untied = queries[i][head] @ keys[j][head[0]] / math.sqrt(2 * len(q))
        if buckets is not None:
            untied += params.buckets[buckets(j - i)][head]
        if params.first is not None and (i == 0 or j == 0):
            untied = params.first[0 if i == 0 else 1][head]
        return q @ k / math.sqrt(2 * len(q)) + untied

    return score, nothing
