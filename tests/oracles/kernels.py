from typing import Any

import numpy as np

from oracles import heads, output


def performer(params: Any, x: np.ndarray, causal: bool = False) -> np.ndarray:
    """Choromanski et al. 2021, eq. 4 and lemma 1: every product of features, written out."""
    q, k, v = heads(params.attention, x)
    q, k = q * q.shape[-1] ** -0.25, k * k.shape[-1] ** -0.25

    def phi(rows: np.ndarray) -> np.ndarray:
        projected = np.einsum("btkgh,mh->btkgm", rows, np.asarray(params.features, np.float64))
        return np.exp(projected - np.square(rows).sum(-1, keepdims=True) / 2)

    weights = np.einsum("btkgm,bskgm->bkgts", phi(q), phi(k))
    return output(params.attention, weighted_means(weights, v, causal))


def linear(params: Any, x: np.ndarray, causal: bool = False) -> np.ndarray:
    """Katharopoulos et al. 2020, eq. 4 and 7: every product of features, written out."""
    q, k, v = heads(params, x)
    phi_q, phi_k = (np.where(rows > 0, rows + 1, np.exp(rows)) for rows in (q, k))
    weights = np.einsum("btkgh,bskgh->bkgts", phi_q, phi_k)
    return output(params, weighted_means(weights, v, causal))


def weighted_means(weights: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """Positive weights [B,K,G,T,T] and v [B,T,K,G,H] -> [B,T,K,G,H]."""
    weights = np.tril(weights) if causal else weights
    return np.einsum("bkgts,bskgh->btkgh", weights / weights.sum(-1, keepdims=True), v)


def aft(params: Any, x: np.ndarray, reach: int = 1 << 30, causal: bool = False) -> np.ndarray:
    """Zhai et al. 2021, eq. 2: every weight of every channel, written out; places have weights up to a reach."""
    q, k, v = heads(params.attention, x)
    mixed = np.empty_like(q)
    for t in range(x.shape[1]):
        window = [s for s in range(x.shape[1]) if abs(t - s) < reach]
        places = np.zeros((x.shape[1], 1, 1, 1))
        for s in window:
            places[s] = np.dot(np.asarray(params.query_places[t]), np.asarray(params.key_places[s]))
        weights = np.exp(k + places) * (np.arange(x.shape[1]) <= (t if causal else np.inf))[:, None, None, None]
        mixed[:, t] = (weights * v).sum(1) / weights.sum(1) / (1 + np.exp(-q[:, t]))
    return output(params.attention, mixed)


def aft_local(params: Any, x: np.ndarray, causal: bool = False) -> np.ndarray:
    """Section 3.2: the weights of places at a distance of 3 or more are 0."""
    return aft(params, x, 3, causal)


def aft_simple(params: Any, x: np.ndarray, causal: bool = False) -> np.ndarray:
    """Section 3.2: all of them are 0."""
    return aft(params, x, 0, causal)


def delta(params: Any, x: np.ndarray) -> np.ndarray:
    """Schlag et al. 2021, eq. 24 and 37: a matrix for each head, corrected token by token."""
    q, k, v = heads(params.attention, x)
    rates = 1 / (1 + np.exp(-(x @ np.asarray(params.rate.kernel) + np.asarray(params.rate.bias))))

    def phi(rows: np.ndarray) -> np.ndarray:
        halves = np.maximum(np.concatenate([rows, -rows], axis=-1), 0)
        products = halves * np.roll(halves, 1, axis=-1)
        return products / products.sum(-1, keepdims=True)

    mixed = np.empty_like(q)
    for b, head, group in np.ndindex(q.shape[0], *q.shape[2:4]):
        weights = np.zeros((2 * q.shape[-1], q.shape[-1]))
        for t in range(x.shape[1]):
            key = phi(k[b, t, head, group])
            weights += rates[b, t, head] * np.outer(key, v[b, t, head, group] - key @ weights)
            mixed[b, t, head, group] = phi(q[b, t, head, group]) @ weights
    return output(params.attention, mixed)


def xca(params: Any, x: np.ndarray) -> np.ndarray:
    """El-Nouby et al. 2021, eq. 3: softmax over the channels of keys."""
    q, k, v = heads(params.attention, x)
    mixed = np.empty_like(q)
    for b, head, group in np.ndindex(q.shape[0], *q.shape[2:4]):
        q1, k1, v1 = (rows[b, :, head, group] for rows in (q, k, v))
        products = (q1 / np.linalg.norm(q1, axis=0)).T @ (k1 / np.linalg.norm(k1, axis=0))
        powers = np.exp(products * np.asarray(params.temperature, np.float64)[head, group])
        mixed[b, :, head, group] = v1 @ (powers / powers.sum(1, keepdims=True)).T
    return output(params.attention, mixed)
