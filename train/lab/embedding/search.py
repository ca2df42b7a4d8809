"""The nearest of many vectors, exactly: by blocks on the device."""

from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class VectorSource(Protocol):
    """Vectors [N,D] of which slices are read: an array, one that is mapped from a file, or an index."""

    @property
    def shape(self) -> tuple[int, ...]:
        """N and D."""

    def __len__(self) -> int:
        """N."""

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Some of them."""


# Vectors that are on the device at a time, at most.
_BLOCK = 1 << 16


def nearest(
    queries: np.ndarray, vectors: VectorSource, count: int, block: int = _BLOCK, similarity: str = "cosine"
) -> tuple[np.ndarray, np.ndarray]:
    """queries [Q,D], vectors [N,D] -> similarities float32 [Q,count], best first, and their rows int32 [Q,count].

    similarity: cosine | dot, the product of the vectors as they are | euclidean | manhattan: minus the distance

    `vectors` may be mapped from a file that is larger than memory. Equal ones come in their order. Raises ValueError
    for vectors of another size, and where fewer than `count` are there.
    """
    if queries.shape[1] != vectors.shape[1]:
        raise ValueError(f"queries have {queries.shape[1]} numbers, and vectors {vectors.shape[1]}; encode both alike")
    if not 1 <= count <= len(vectors):
        raise ValueError(f"count={count} must be at least 1, and at most {len(vectors)}, the vectors that are there")
    block = min(block, len(vectors))
    scores = jnp.full((len(queries), count), -jnp.inf, jnp.float32)
    rows = jnp.zeros((len(queries), count), jnp.int32)
    queries = queries.astype(np.float32)
    for start in range(0, len(vectors), block):
        part = np.asarray(vectors[start : start + block], np.float32)
        padded = np.pad(part, ((0, block - len(part)), (0, 0)))
        scores, rows = _merge(scores, rows, queries, padded, jnp.int32(start), jnp.int32(len(part)), similarity)
    return np.asarray(scores), np.asarray(rows)


def normalize(vectors: np.ndarray) -> np.ndarray:
    """vectors [N,D] -> float32 [N,D] of length 1; a vector of zeros stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


@partial(jax.jit, static_argnums=2)
def compare(queries: Array, vectors: Array, similarity: str) -> Array:
    """queries [Q,D], vectors [M,D] -> similarities float32 [Q,M], as sentence-transformers has them."""
    if similarity in ("euclidean", "manhattan"):
        order = 2 if similarity == "euclidean" else 1
        return -jax.lax.map(lambda query: jnp.linalg.norm(vectors - query[None], order, axis=1), queries)
    products = jnp.einsum("qd,md->qm", queries, vectors, precision="highest")
    if similarity == "dot":
        return products
    lengths = (jnp.maximum(jnp.linalg.norm(side, axis=1), 1e-30) for side in (queries, vectors))
    return products / jnp.multiply.outer(*lengths)


@partial(jax.jit, donate_argnums=(0, 1), static_argnums=6)
def _merge(
    scores: Array, rows: Array, queries: Array, part: Array, start: Array, size: Array, similarity: str
) -> tuple[Array, Array]:
    """The best rows so far [Q,K], and those of a part [M,D] of the vectors, of which `size` are there -> the best."""
    places = jnp.arange(len(part), dtype=jnp.int32)[None]
    similarities = jnp.where(places < size, compare(queries, part, similarity), -jnp.inf)
    candidates = jnp.concatenate([rows, jnp.broadcast_to(start + places, similarities.shape)], axis=1)
    best, index = jax.lax.top_k(jnp.concatenate([scores, similarities], axis=1), scores.shape[1])
    return best, jnp.take_along_axis(candidates, index, axis=1)
