from typing import Any

import numpy as np

from oracles import output, softmax


def _channels(params: Any, x: np.ndarray) -> np.ndarray:
    """Gated linear units [B,T,K,G,H]."""
    value, gate = (
        np.einsum("btd,dkgh->btkgh", x, np.asarray(linear.kernel, np.float64)) + np.asarray(linear.bias)
        for linear in (params.value, params.gate)
    )
    return value / (1 + np.exp(-gate))


def _convolve(params: Any, channels: np.ndarray, kernels: np.ndarray) -> np.ndarray:
    """Token t reads the tokens from t - w // 2 on, by its kernels [B,T,K,G,w]; there is nothing beyond the text."""
    heads, window = np.zeros(channels.shape), kernels.shape[-1]
    for b, t, k, g in np.ndindex(channels.shape[:-1]):
        for n, weight in enumerate(softmax(kernels[b, t, k, g])):
            source = t - window // 2 + n
            if 0 <= source < channels.shape[1]:
                heads[b, t, k, g] += weight * channels[b, source, k, g]
    return output(params, heads)


def lightconv(params: Any, x: np.ndarray) -> np.ndarray:
    """Wu et al. 2019."""
    kernel = np.asarray(params.kernel, np.float64)
    return _convolve(params, _channels(params, x), np.broadcast_to(kernel, (*x.shape[:2], *kernel.shape)))


def dynamicconv(params: Any, x: np.ndarray) -> np.ndarray:
    """Wu et al. 2019."""
    channels = _channels(params, x)
    kernels = np.einsum("btkgh,kghnw->btnw", channels, np.asarray(params.kernel.kernel, np.float64))
    return _convolve(params, channels, kernels.reshape(*channels.shape[:-1], -1))


def textcnn(params: Any, x: np.ndarray) -> np.ndarray:
    """Kim 2014, eq. 2: filters of each size on the tokens from t - w // 2 on, and a ReLU."""
    features = []
    for kernel, bias in zip(params.kernels, params.biases, strict=True):
        kernel, bias = np.asarray(kernel, np.float64), np.asarray(bias, np.float64)
        size, y = len(kernel), np.tile(bias, (*x.shape[:2], 1))
        for b, t, n in np.ndindex(*x.shape[:2], size):
            source = t - size // 2 + n
            if 0 <= source < x.shape[1]:
                y[b, t] += x[b, source] @ kernel[n]
        features.append(np.maximum(y, 0))
    return np.concatenate(features, axis=-1)
