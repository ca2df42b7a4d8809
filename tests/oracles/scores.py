from typing import Any

import numpy as np

from oracles import output, softmax


def _attention(params: Any, x: np.ndarray, sources: tuple[np.ndarray, np.ndarray], score: Any) -> np.ndarray:
    """Attention of states x with keys and values of other states, by a score of two vectors of head (k, g); loops over
    pairs."""
    query, key, value = (
        np.einsum("btd,d...->bt...", rows, np.asarray(linear.kernel, np.float64))
        + (0 if linear.bias is None else np.asarray(linear.bias))
        for linear, rows in zip((params.query, params.key, params.value), (x, *sources), strict=True)
    )
    heads = np.zeros(query.shape)
    for b, t, k, g in np.ndindex(query.shape[:-1]):
        scores = np.array([score(query[b, t, k, g], row[k], (k, g)) for row in key[b]])
        heads[b, t, k, g] = softmax(scores) @ value[b, :, k]
    return output(params, heads)


def _sources(x: np.ndarray, source: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """What keys and values are made of: states x themselves, or those of a source."""
    return (x, x) if source is None else (source, source)


def dot(params: Any, x: np.ndarray, source: np.ndarray | None = None) -> np.ndarray:
    """Luong et al. 2015, eq. 8: dot."""
    return _attention(params, x, _sources(x, source), lambda q, k, head: q @ k)


def multiplicative(params: Any, x: np.ndarray, source: np.ndarray | None = None) -> np.ndarray:
    """Luong et al. 2015, eq. 8: general."""
    matrices = np.asarray(params.score, np.float64)
    return _attention(params, x, _sources(x, source), lambda q, k, head: q @ matrices[head] @ k)


def additive(params: Any, x: np.ndarray, source: np.ndarray | None = None) -> np.ndarray:
    """Bahdanau et al. 2015, appendix A.1.2."""
    vectors = np.asarray(params.score, np.float64)
    return _attention(params, x, _sources(x, source), lambda q, k, head: vectors[head] @ np.tanh(q + k))


def key_value(params: Any, x: np.ndarray) -> np.ndarray:
    """Daniluk et al. 2017: the first half of a state is compared, the second one is summed."""
    vectors = np.asarray(params.score, np.float64)
    compared, summed = np.split(x, 2, axis=-1)
    return _attention(params, compared, (compared, summed), lambda q, k, head: vectors[head] @ np.tanh(q + k))
