from typing import Any

import numpy as np


def fnet(params: Any, x: np.ndarray) -> np.ndarray:
    """Lee-Thorp et al. 2021, eq. 1 and 3: the sums of two Fourier transforms, written out."""

    def transform(size: int) -> np.ndarray:
        return np.exp(-2j * np.pi * np.outer(np.arange(size), np.arange(size)) / size)

    return np.einsum("ut,btd,de->bue", transform(x.shape[1]), x, transform(x.shape[2])).real
