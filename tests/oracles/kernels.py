from typing import Any

import numpy as np

from oracles import heads, output


def performer(params: Any, x: np.ndarray) -> np.ndarray:
    """Choromanski et al. 2021, eq. 4 and lemma 1: every product of features, written out."""
    q, k, v = (rows * scale for rows, scale in zip(heads(params.attention, x), (4**-0.25, 4**-0.25, 1), strict=True))

    def phi(rows: np.ndarray) -> np.ndarray:
        projected = np.einsum("btkgh,mh->btkgm", rows, np.asarray(params.features, np.float64))
        return np.exp(projected - np.square(rows).sum(-1, keepdims=True) / 2)

    weights = np.einsum("btkgm,bskgm->bkgts", phi(q), phi(k))
    weights = weights / weights.sum(-1, keepdims=True)
    return output(params.attention, np.einsum("bkgts,bskgh->btkgh", weights, v))
