from collections.abc import Callable
from typing import Any

import numpy as np


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _read(params: Any, x: np.ndarray, step: Callable[..., tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """One text, one direction and one token at a time; the second direction reads from the right.

    A kernel [n,d,g,r] reads the half of its direction; without an output, states are what is returned.
    """
    kernel, bias, hidden = (
        np.asarray(leaf, np.float64) for leaf in (params.input.kernel, params.input.bias, params.hidden)
    )
    directions, size, _, units = hidden.shape
    is_separate = kernel.shape[0] == directions > 1
    projection = None if params.projection is None else np.asarray(params.projection, np.float64)
    states = np.zeros((*x.shape[:2], directions, size))
    for b in range(len(x)):
        for n in range(directions):
            state, cell = np.zeros(size), np.zeros(units)
            times = range(x.shape[1])
            for t in reversed(times) if n else times:
                token = x[b, t]
                if is_separate:
                    half = token[n * len(token) // 2 : (n + 1) * len(token) // 2]
                    read = np.einsum("d,dgr->gr", half, kernel[n]) + bias[n]
                else:
                    read = np.einsum("d,dgr->gr", token, kernel[:, n]) + bias[n]
                state, cell = step(read, np.einsum("s,sgr->gr", state, hidden[n]), state, cell)
                state = state if projection is None else state @ projection[n]
                states[b, t, n] = state
    if params.output is None:
        return states.reshape(*x.shape[:2], -1)
    return np.einsum("btnr,nrd->btd", states, params.output.kernel) + np.asarray(params.output.bias)


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
