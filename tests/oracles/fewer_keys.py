from typing import Any

import numpy as np

from oracles import heads, output, softmax


def linformer(params: Any, x: np.ndarray) -> np.ndarray:
    """Wang et al. 2020, eq. 7: softmax attention to rows that are sums over the length."""
    q, k, v = heads(params.attention, x)
    k = np.einsum("bskgh,sr->brkgh", k, np.asarray(params.keys)[: x.shape[1]])
    v = np.einsum("bskgh,sr->brkgh", v, np.asarray(params.values)[: x.shape[1]])
    weights = softmax(np.einsum("btkgh,brkgh->bkgtr", q, k) * q.shape[-1] ** -0.5)
    return output(params.attention, np.einsum("bkgtr,brkgh->btkgh", weights, v))


def compressed(params: Any, x: np.ndarray, causal: bool = False) -> np.ndarray:
    """Liu et al. 2018, section 4.2.3: a convolution of groups of 3, zeros behind the text.

    A token of a decoder sees the groups before its own, and the tokens of its own group up to itself.
    """
    q, *keys_values = heads(params.attention, x)

    def merge(rows: np.ndarray, layer: Any) -> np.ndarray:
        """[B,T,K,G,H] -> [B,M,K,G,H]."""
        merged = []
        for first in range(0, rows.shape[1], 3):
            total = np.broadcast_to(np.asarray(layer.bias)[:, None], (*rows[:, 0].shape[:3], rows.shape[-1]))
            for place, row in enumerate(np.moveaxis(rows[:, first : first + 3], 1, 0)):
                total = total + np.einsum("bkgh,hke->bkge", row, np.asarray(layer.kernel)[place])
            merged.append(total)
        return np.stack(merged, axis=1)

    merged = [merge(rows, layer) for rows, layer in zip(keys_values, (params.keys, params.values), strict=True)]
    mixed = np.empty_like(q)
    for t in range(x.shape[1]):
        k, v = merged
        if causal:
            pairs = zip(merged, keys_values, strict=True)
            k, v = (np.concatenate([new[:, : t // 3], rows[:, t - t % 3 : t + 1]], 1) for new, rows in pairs)
        weights = softmax(np.einsum("bkgh,bmkgh->bkgm", q[:, t], k) * q.shape[-1] ** -0.5)
        mixed[:, t] = np.einsum("bkgm,bmkgh->bkgh", weights, v)
    return output(params.attention, mixed)


def nystrom(params: Any, x: np.ndarray) -> np.ndarray:
    """Xiong et al. 2021, eq. 13 and 15, for 3 landmarks of 8 tokens: segments of 3, 3 and 2; and the convolution."""
    q, k, v = heads(params.attention, x)
    q_means, k_means = (
        np.stack([rows[:, start:end].mean(1) for start, end in ((0, 3), (3, 6), (6, 8))], axis=1) for rows in (q, k)
    )

    def weights(q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return softmax(np.einsum("btkgh,bskgh->bkgts", q, k) * q.shape[-1] ** -0.5)

    mixed = np.empty_like(q)
    to_landmarks, among, to_keys = weights(q, k_means), weights(q_means, k_means), weights(q_means, k)
    for index in np.ndindex(among.shape[:3]):
        a, identity = among[index], np.eye(3)
        z = a.T / (np.abs(a).sum(0).max() * np.abs(a).sum(1).max())
        for _ in range(6):
            z = z @ (13 * identity - a @ z @ (15 * identity - a @ z @ (7 * identity - a @ z))) / 4
        b, head, group = index
        mixed[b, :, head, group] = to_landmarks[index] @ z @ to_keys[index] @ v[b, :, head, group]
    padded = np.pad(v, ((0, 0), (2, 2), (0, 0), (0, 0), (0, 0)))
    for place, kernel in enumerate(np.asarray(params.convolution)):
        mixed += padded[:, place : place + 8] * kernel[:, None, None]
    return output(params.attention, mixed)
