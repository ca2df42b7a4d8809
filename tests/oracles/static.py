import math
from typing import Any

import numpy as np

from oracles import output, softmax


def fnet(params: Any, x: np.ndarray) -> np.ndarray:
    """Lee-Thorp et al. 2021, eq. 1 and 3: the sums of two Fourier transforms, written out."""

    def transform(size: int) -> np.ndarray:
        return np.exp(-2j * np.pi * np.outer(np.arange(size), np.arange(size)) / size)

    return np.einsum("ut,btd,de->bue", transform(x.shape[1]), x, transform(x.shape[2])).real


def gmlp(params: Any, x: np.ndarray) -> np.ndarray:
    """Liu et al. 2021, section 2."""
    value, gate = (
        0.5 * rows * (1 + np.vectorize(math.erf)(rows / math.sqrt(2)))
        for linear in (params.value, params.gate)
        for rows in [x @ np.asarray(linear.kernel, np.float64) + np.asarray(linear.bias)]
    )
    gate = (gate - gate.mean(-1, keepdims=True)) / gate.std(-1, keepdims=True)
    gate = gate * np.asarray(params.norm.scale) + np.asarray(params.norm.bias)
    mixed = np.zeros(gate.shape)
    for t in range(x.shape[1]):
        for s in range(x.shape[1]):
            mixed[:, t] += float(params.places[t, s]) * gate[:, s]
        mixed[:, t] += float(params.bias[t])
    return (value * mixed) @ np.asarray(params.output.kernel, np.float64) + np.asarray(params.output.bias)


def synthesizer(params: Any, x: np.ndarray, factorized: bool = False) -> np.ndarray:
    """Tay et al. 2021, section 3.1: the scores of every pair, written out."""
    project = lambda linear: (
        np.einsum("btd,d...->bt...", x, np.asarray(linear.kernel, np.float64)) + np.asarray(linear.bias)
    )
    q = None if params.query is None else project(params.query)
    k = None if params.key is None else project(params.key)
    v = project(params.value)
    dense, random = ([np.asarray(leaf, np.float64) for leaf in leaves] for leaves in (params.dense, params.random))
    batch, length = x.shape[:2]
    heads = np.zeros((batch, length, *params.output.kernel.shape[:3]))
    for b, t, n, g in np.ndindex(heads.shape[:-1]):
        terms = []
        if k is not None:
            terms.append(k[b, :, n] @ q[b, t, n, g] / math.sqrt(q.shape[-1]))
        if dense:
            rows = [np.maximum(q[b, t, n, g], 0) @ kernel[n, g] for kernel in dense]
            size = len(rows[-1])
            terms.append([rows[0][s // size] * rows[1][s % size] if factorized else rows[0][s] for s in range(length)])
        if random:
            row, columns = random[0][t, n, g], random[-1][:, n, g]
            terms.append([row @ columns[s] if factorized else row[s] for s in range(length)])
        shares = [1.0] if params.mixture is None else softmax(np.asarray(params.mixture, np.float64))
        scores = sum(share * np.asarray(term) for share, term in zip(shares, terms, strict=True))
        heads[b, t, n, g] = softmax(scores) @ v[b, :, n]
    return output(params, heads)


def factorized_synthesizer(params: Any, x: np.ndarray) -> np.ndarray:
    """The same with products for tables."""
    return synthesizer(params, x, factorized=True)
