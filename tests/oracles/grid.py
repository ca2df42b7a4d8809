"""What layers over a grid of patches should compute, by numpy and loops, place by place."""

import itertools
from typing import Any

import numpy as np

from oracles import heads, output, softmax


def windowed(
    params: Any, x: np.ndarray, grid: tuple[int, int], size: int, shift: int, bias: Any = None, change: Any = None
) -> np.ndarray:
    """Attention of x [B,T,D] in windows of a grid (Liu et al. 2021, section 3.2), one place after the other.

    The grid is filled up with zeros to whole windows and closed to a torus, on which windows begin `shift` rows and
    columns late; a place sees those of its window that are on its side of the seams. bias: (rows, columns) from a key
    to a query -> [K,G]; change: queries and keys -> others, which are compared.
    """
    sides = [-(-side // size) * size for side in grid]
    places = list(np.ndindex(*sides))
    padded = np.zeros((len(x), *sides, x.shape[-1]))
    padded[:, : grid[0], : grid[1]] = x.reshape(len(x), *grid, -1)
    projected = heads(params, padded.reshape(len(x), -1, x.shape[-1]))
    q, k, v = (rows.reshape(len(x), *sides, *rows.shape[2:]) for rows in projected)
    q, k = (q, k) if change is None else change(q, k)

    def window(place: tuple[int, int]) -> tuple:
        """Its window on the torus, and on which sides of the seams it lies."""
        late = [(axis - shift) % side for axis, side in zip(place, sides, strict=True)]
        return tuple(axis // size for axis in late), tuple(axis < shift for axis in place)

    def inner(place: tuple[int, int]) -> np.ndarray:
        """Its row and column in the window."""
        return np.array([(axis - shift) % side % size for axis, side in zip(place, sides, strict=True)])

    mixed = np.zeros_like(q)
    for b in range(len(x)):
        for place in places:
            seen = [key for key in places if window(key) == window(place)]
            scores = np.stack([(q[b, *place] * k[b, *key]).sum(-1) for key in seen]) * q.shape[-1] ** -0.5
            if bias is not None:
                scores = scores + np.stack([bias(*(inner(place) - inner(key))) for key in seen])
            powers = np.exp(scores - scores.max(0))
            for weight, key in zip(powers / powers.sum(0), seen, strict=True):
                mixed[b, *place] += weight[..., None] * v[b, *key]
    return output(params, mixed[:, : grid[0], : grid[1]].reshape(len(x), -1, *mixed.shape[3:]))


def channel_groups(params: Any, x: np.ndarray, by_tokens: bool = True) -> np.ndarray:
    """Ding et al. 2022, section 3.2: softmax over the channels of keys, group by group."""
    q, k, v = heads(params, x)
    mixed = np.empty_like(q)
    for b, group in np.ndindex(q.shape[0], q.shape[2]):
        q1, k1, v1 = (rows[b, :, group, 0] for rows in (q, k, v))
        scores = q1.T @ k1 / np.sqrt(len(q1) if by_tokens else q1.shape[1])
        powers = np.exp(scores - scores.max(1, keepdims=True))
        mixed[b, :, group, 0] = v1 @ (powers / powers.sum(1, keepdims=True)).T
    return output(params, mixed)


def depthwise(kernel: np.ndarray, bias: np.ndarray, x: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """A sum over the 3 x 3 nearest places of x [B,T,D], channel by channel; zeros beyond the grid."""
    image = x.reshape(len(x), *grid, -1)
    y = np.zeros_like(image) + bias
    for row, column in np.ndindex(*grid):
        for i, j in np.ndindex(3, 3):
            neighbour = row + i - 1, column + j - 1
            if 0 <= neighbour[0] < grid[0] and 0 <= neighbour[1] < grid[1]:
                y[:, row, column] += kernel[i, j] * image[:, *neighbour]
    return y.reshape(x.shape)


def neighbourhood(params: Any, x: np.ndarray, grid: tuple[int, int], size: int) -> np.ndarray:
    """Hassani et al. 2023, eq. 2 and 3: a place attends to the nearest square of size x size that lies in the grid."""
    q, k, v = heads(params, x)
    mixed = np.zeros_like(q)
    for place, axes in enumerate(np.ndindex(*grid)):
        sides = (nearest(axis, size, side) for axis, side in zip(axes, grid, strict=True))
        seen = [grid[1] * row + column for row, column in itertools.product(*sides)]
        scores = np.einsum("bkgh,bskgh->bkgs", q[:, place], k[:, seen]) * q.shape[-1] ** -0.5
        mixed[:, place] = np.einsum("bkgs,bskgh->bkgh", softmax(scores), v[:, seen])
    return output(params, mixed)


def nearest(place: int, size: int, side: int) -> list[int]:
    """The `size` places of a side that are nearest to one, of equal ones those that make it the middle."""
    middle = min(max(place, size // 2), max(size // 2, side - 1 - size // 2))
    return sorted(sorted(range(side), key=lambda n: abs(n - middle))[:size])


def spatial_reduction(params: Any, x: np.ndarray, grid: tuple[int, int], factor: int) -> np.ndarray:
    """Wang et al. 2021, eq. 3 and 4: keys and values of squares of patches; zeros beyond the grid."""
    sides = [-(-side // factor) for side in grid]
    padded = np.zeros((len(x), *(factor * side for side in sides), x.shape[-1]))
    padded[:, : grid[0], : grid[1]] = x.reshape(len(x), *grid, -1)
    kernel, states = np.asarray(params.reduction.kernel, np.float64), []
    for row, column in np.ndindex(*sides):
        square = padded[:, factor * row : factor * (row + 1), factor * column : factor * (column + 1)]
        y = np.tensordot(square, kernel, 3) + np.asarray(params.reduction.bias, np.float64)
        y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-12)
        states.append(y * np.asarray(params.norm.scale) + np.asarray(params.norm.bias))
    q, (_, k, v) = heads(params.attention, x)[0], heads(params.attention, np.stack(states, 1))
    k, v = (np.broadcast_to(rows[:, :, :, :1], (*rows.shape[:2], *q.shape[2:])) for rows in (k, v))
    weights = softmax(np.einsum("btkgh,bskgh->bkgts", q, k) * q.shape[-1] ** -0.5)
    return output(params.attention, np.einsum("bkgts,bskgh->btkgh", weights, v))


def stripes(params: Any, x: np.ndarray, grid: tuple[int, int], stripe: int) -> np.ndarray:
    """Dong et al. 2022, eq. 2 and 3: the first half of the heads in stripes of rows, the others in stripes of columns;
    and the values of the neighbours of a place, by their own weights."""
    q, k, v = heads(params.attention, x)
    places, mixed = list(np.ndindex(*grid)), np.zeros_like(q)
    for index, place in enumerate(places):
        for axis, some in enumerate((slice(None, q.shape[2] // 2), slice(q.shape[2] // 2, None))):
            seen = [n for n, key in enumerate(places) if key[axis] // stripe == place[axis] // stripe]
            scores = np.einsum("bkgh,bskgh->bkgs", q[:, index, some], k[:, seen, some]) * q.shape[-1] ** -0.5
            mixed[:, index, some] = np.einsum("bkgs,bskgh->bkgh", softmax(scores), v[:, seen, some])
    flat = v[:, :, :, 0].reshape(*x.shape[:2], -1)
    kernel = np.asarray(params.places, np.float64).reshape(3, 3, -1)
    neighbours = depthwise(kernel, np.asarray(params.places_bias, np.float64).reshape(-1), flat, grid)
    return output(params.attention, mixed + neighbours.reshape(*v.shape[:3], 1, v.shape[-1]))
