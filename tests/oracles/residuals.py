"""Stacks of blocks by numpy and loops: embeddings x [B,T,D] and the parameters of blocks -> [B,T,D]."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import tfm
from oracles import attention


def start(specs: Any) -> Any:
    """Initial values, in one program."""
    return jax.jit(functools.partial(tfm.init, specs))(jax.random.key(0))


def unstacked(layers: Any) -> list[Any]:
    """The blocks of a stack with one kind of layer, in float64."""
    (tree,) = layers.period
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)
    return [jax.tree.map(lambda leaf, row=row: leaf[row], wide) for row in range(len(jax.tree.leaves(wide)[0]))]


def normalized(norm: Any, x: np.ndarray) -> np.ndarray:
    """Layer norm, token by token."""
    y = np.empty_like(x)
    for place in np.ndindex(x.shape[:-1]):
        centered = x[place] - x[place].mean()
        y[place] = centered / math.sqrt((centered**2).mean() + 1e-12) * norm.scale + norm.bias
    return y


def fed_forward(layer: Any, x: np.ndarray) -> np.ndarray:
    """down(gelu(up(x)))."""
    hidden = x @ layer.up.kernel + layer.up.bias
    gelu = np.vectorize(lambda z: z * (1 + math.erf(z / math.sqrt(2))) / 2)
    return gelu(hidden) @ layer.down.kernel + layer.down.bias


def encoder(blocks: list[Any], x: np.ndarray, join: Callable) -> tuple[np.ndarray, list[float]]:
    """The last states, and the variance of what each sublayer adds; join(block, name, x, y) is the next stream."""
    variances = []
    for block in blocks:
        for name, function in (("mixer", attention), ("feed_forward", fed_forward)):
            y = function(getattr(block, name), x)
            variances.append(float(y.var()))
            x = join(block, name, x, y)
    return x, variances


def embedded(params: Any, config: tfm.Config, tokens: Any) -> np.ndarray:
    """The embeddings of an encoder."""
    return np.asarray(jax.jit(tfm.embed, static_argnums=1)(params.embed, config, tokens), np.float64)
