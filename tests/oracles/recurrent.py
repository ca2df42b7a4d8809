from collections.abc import Callable
from typing import Any

import numpy as np


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _read(params: Any, x: np.ndarray, step: Callable[..., tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """One text, one direction and one token at a time; the second direction reads from the right."""
    kernel, bias, hidden, back = (
        np.asarray(leaf, np.float64)
        for leaf in (params.input.kernel, params.input.bias, params.hidden, params.output.kernel)
    )
    states = np.zeros((*x.shape[:2], *back.shape[:2]))
    for b in range(len(x)):
        for n in range(kernel.shape[1]):
            state = cell = np.zeros(hidden.shape[1])
            times = range(x.shape[1])
            for t in reversed(times) if n else times:
                read = np.einsum("d,dgr->gr", x[b, t], kernel[:, n]) + bias[n]
                state, cell = step(read, np.einsum("s,sgr->gr", state, hidden[n]), state, cell)
                states[b, t, n] = state
    return np.einsum("btnr,nrd->btd", states, back) + np.asarray(params.output.bias)


def _gru(read, recalled, state, cell):
    reset, update = _sigmoid(read[0] + recalled[0]), _sigmoid(read[1] + recalled[1])
    candidate = np.tanh(read[2] + reset * recalled[2])
    return update * state + (1 - update) * candidate, cell


def _lstm(read, recalled, state, cell):
    first, forget, last = (_sigmoid(read[gate] + recalled[gate]) for gate in range(3))
    cell = forget * cell + first * np.tanh(read[3] + recalled[3])
    return last * np.tanh(cell), cell


def gru(params: Any, x: np.ndarray) -> np.ndarray:
    """Cho et al. 2014, eq. 5 to 8, with the reset gate behind the product."""
    return _read(params, x, _gru)


def lstm(params: Any, x: np.ndarray) -> np.ndarray:
    """Gers et al. 2000."""
    return _read(params, x, _lstm)
