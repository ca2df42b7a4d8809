"""An index of vectors of tokens: int8 on the disk, lists of passages near to centroids, and exact scores of those.

index.json         format, the run, the kind late, counts of texts, tokens and centroids, and the size of a vector
vectors.i8         int8 [tokens,C]; a vector is its numbers times its scale
scales.npy         float32 [tokens]
starts.npy         int64 [N+1], where the tokens of each text begin
centroids.npy      float32 [K,C], of length 1
lists.npy          int32, the texts with a token whose nearest centroid it is, of one centroid after the other
list_starts.npy    int64 [K+1], where the texts of each centroid begin
texts.jsonl, places.npy: as in `train.lab.embedding.index`

A query looks at the lists of the centroids that are nearest to its tokens, as ColBERTv2 does (Santhanam et al. 2022,
section 3.5). int8 and not its residuals of 1 or 2 bits: they take a fourth of the place, and must be trained.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import sparse

from train import UserError
from train.lab.embedding.index import IndexFolder, in_eight_bits, new_folder, write_facts, write_texts
from train.lab.embedding.late import LateEncoder, nearest_late
from train.lab.embedding.options import TextEncoderOptions
from train.lab.embedding.search import normalize
from train.screens.console import Log

# Texts that are encoded at a time; products of vectors and centroids at a time, on a device and on the host.
_TEXTS, _PRODUCTS, _PRODUCTS_OF_HOST = 4096, 1 << 28, 1 << 25

# Centroids for each root of the count of vectors, rounds of k-means, vectors of its sample for each centroid.
_CENTROIDS, _ROUNDS, _SAMPLE = 4, 8, 32

# Centroids that are looked up for a token of a query, and texts whose exact scores are computed.
_PROBES, _CANDIDATES = 4, 1024


def write(to: str, texts: Sequence[str], options: TextEncoderOptions, log: Log):
    """Writes the index of texts. The folder takes its name when it is complete. Raises UserError where it exists."""
    encoder = LateEncoder(options, log)
    with new_folder(to) as part:
        starts = _write_vectors(part, encoder, texts, log)
        tokens = np.memmap(part / "vectors.i8", np.int8, "r", shape=(int(starts[-1]), encoder.size))
        with log.waiting(f"finding the centroids of {len(tokens):,} tokens"):
            centroids = _centroids(tokens)
            nearest = _nearest(tokens, centroids)
        np.save(part / "centroids.npy", centroids)
        pairs = np.unique(nearest * len(texts) + np.repeat(np.arange(len(texts)), np.diff(starts)))
        np.save(part / "lists.npy", (pairs % len(texts)).astype(np.int32))
        np.save(part / "list_starts.npy", np.searchsorted(pairs // len(texts), np.arange(len(centroids) + 1)))
        write_texts(part, texts)
        counts = {"count": len(texts), "tokens": len(tokens), "size": encoder.size, "centroids": len(centroids)}
        write_facts(part, options, {"kind": "late", "similarity": "late", **counts})


def _write_vectors(part: Path, encoder: LateEncoder, texts: Sequence[str], log: Log) -> np.ndarray:
    """Writes the vectors of the tokens of all texts, and where each text begins: that is returned, int64 [N+1]."""
    sizes, scales = [np.zeros(1, np.int64)], []
    quiet, title = Log(quiet=True), f"encoding {len(texts):,} texts"
    with (part / "vectors.i8").open("wb") as file, log.progress(title, len(texts)) as advance:
        for start in range(0, len(texts), _TEXTS):
            vectors = encoder.passages(texts[start : start + _TEXTS], quiet)
            sizes.append(np.array([len(rows) for rows in vectors]))
            numbers, scale = in_eight_bits(np.concatenate(vectors))
            scales.append(scale)
            file.write(numbers.tobytes())
            advance(len(vectors))
    starts = np.cumsum(np.concatenate(sizes))
    np.save(part / "starts.npy", starts)
    np.save(part / "scales.npy", np.concatenate(scales))
    return starts


def _centroids(vectors: np.ndarray) -> np.ndarray:
    """int8 [N,C] -> float32 [K,C] of length 1: k-means of a sample, by cosine (Dhillon & Modha 2001)."""
    rng = np.random.default_rng(0)
    count = max(1, min(len(vectors), int(_CENTROIDS * np.sqrt(len(vectors)))))
    rows = np.sort(rng.choice(len(vectors), min(len(vectors), _SAMPLE * count), replace=False))
    sample = normalize(np.asarray(vectors[rows], np.float32))
    centroids = sample[rng.choice(len(sample), count, replace=False)]
    for _ in range(_ROUNDS):
        nearest = _nearest(sample, centroids)
        members = sparse.csr_matrix((np.ones(len(sample)), (nearest, np.arange(len(sample)))), (count, len(sample)))
        sums = np.asarray(members @ sample, np.float32)
        is_empty = (sums == 0).all(1, keepdims=True)
        centroids = normalize(np.where(is_empty, centroids, sums))
    return centroids


def _nearest(vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """The nearest centroid of each vector, int64 [N]."""
    on_host = jax.default_backend() == "cpu"  # numpy finds the largest of a row 4 times as fast there (M111)
    size = max(1, (_PRODUCTS_OF_HOST if on_host else _PRODUCTS) // len(centroids))
    parts = (np.asarray(vectors[start : start + size], np.float32) for start in range(0, len(vectors), size))
    if on_host:
        return np.concatenate([(part @ centroids.T).argmax(1) for part in parts])
    return np.concatenate([np.asarray(_largest(part, centroids), np.int64) for part in parts])


@jax.jit
def _largest(vectors: Array, centroids: Array) -> Array:
    return jnp.einsum("nc,kc->nk", vectors, centroids).argmax(-1)


@final
class LateIndex(IndexFolder):
    """The index in a folder; its vectors stay on the disk. Raises UserError for one that is damaged."""

    def __init__(self, path: str):
        super().__init__(path)
        tokens, size, centroids = (self.facts.get(name) for name in ("tokens", "size", "centroids"))
        self.starts = self._array("starts.npy", (len(self) + 1,), np.int64)
        self.scales = self._array("scales.npy", (tokens,))
        self.centroids = np.asarray(self._array("centroids.npy", (centroids, size)))
        self.list_starts = self._array("list_starts.npy", (len(self.centroids) + 1,), np.int64)
        self.lists = self._array("lists.npy", (int(self.list_starts[-1]),), np.int32)
        file, shape = self.path / "vectors.i8", (len(self.scales), self.centroids.shape[1])
        if not file.is_file() or file.stat().st_size != shape[0] * shape[1]:
            raise UserError(f"{file} is absent or damaged; make the index again")
        self.vectors = np.memmap(file, np.int8, "r", shape=shape)

    def passages(self, rows: Sequence[int] | np.ndarray) -> list[np.ndarray]:
        """The vectors of the tokens of these texts, float32 [tokens,C] each."""
        spans = [slice(int(self.starts[row]), int(self.starts[row + 1])) for row in rows]
        return [self.vectors[span].astype(np.float32) * self.scales[span, None] for span in spans]

    def search(self, query: np.ndarray, count: int, probes: int = _PROBES) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of the tokens of a query [Q,C] -> the best scores that its candidates have, and their rows; all texts
        are candidates where they are few."""
        rows = np.arange(len(self)) if len(self) <= _CANDIDATES else self.candidates(query, _CANDIDATES, probes)
        scores, places = nearest_late([query], self.passages(rows), min(count, len(rows)))
        return scores[0], rows[places[0]]

    def candidates(self, query: np.ndarray, count: int, probes: int) -> np.ndarray:
        """The rows int [count] of texts by the centroids alone: the sum, over the tokens of a query, of the largest
        product with a centroid that is looked up and has a token of the text."""
        products = query @ self.centroids.T
        totals = np.zeros(len(self), np.float32)
        for row in products:
            probed = np.argsort(-row, kind="stable")[:probes]
            best = np.zeros(len(self), np.float32)
            for centroid in probed[::-1]:  # the nearest last: it stays
                best[self.lists[self.list_starts[centroid] : self.list_starts[centroid + 1]]] = max(row[centroid], 0)
            totals += best
        return np.sort(np.argsort(-totals, kind="stable")[:count])
