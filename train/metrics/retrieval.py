"""How often the right one of many vectors is among the nearest, and how well cosines follow scores."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


# Rows of numbers, or a sparse matrix of them.
Vectors: TypeAlias = "np.ndarray | csr_matrix"

# Queries that meet all candidates at a time.
_BLOCK = 512

# Cosines that differ by less are equal.
_TIE = 1e-6


def retrieval(
    queries: Vectors, candidates: Vectors, size: int | None = None, contents: np.ndarray | None = None
) -> dict[str, float]:
    """queries and candidates [N,D] of length 1, arrays or sparse matrices -> shares of queries, by name.

    Row n of the candidates is right for row n of the queries. `retrieval_1` is the share of queries to which no
    candidate is nearer, `retrieval_5` of those to which at most four are; candidates that are equally near count in
    part. The candidates of a query are the rows of its group of `size`, in order, or all rows; the last group is left
    out where it is not full.

    contents int [N,2] are those of query and candidate of a row: equal numbers are of equal texts or images. A
    candidate that is equal to the right one or to the query, or is the right one of an equal query, is right.
    """
    total = queries.shape[0]
    size = min(size or total, total)
    contents = np.arange(2 * total).reshape(2, total).T if contents is None else contents
    cuts = [slice(first, first + size) for first in _firsts(total, size)]
    places = [_places(queries[cut], candidates[cut], contents[cut]) for cut in cuts]
    nearer, equal = np.concatenate(places, axis=1)
    return {f"retrieval_{count}": float(np.clip((count - nearer) / equal, 0, 1).mean()) for count in (1, 5)}


def both_retrievals(
    first: np.ndarray, second: np.ndarray, size: int | None = None, contents: np.ndarray | None = None
) -> dict[str, float]:
    """`retrieval` of the second vectors by the first, and, with `_back` behind the names, the other way round."""
    swapped = None if contents is None else contents[:, ::-1]
    backwards = {f"{name}_back": value for name, value in retrieval(second, first, size, swapped).items()}
    return retrieval(first, second, size, contents) | backwards


def usual_and_withheld(weights: np.ndarray, withheld: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The rows that count, and those of them that are withheld, each with the ending of the names of their metrics."""
    for name, value in (("", 0), ("_withheld", 1)):
        rows = np.flatnonzero((weights > 0) & (withheld == value))
        if len(rows):
            yield name, rows


def _firsts(total: int, size: int) -> range:
    return range(0, total - size + 1, max(size, 1))


def _places(queries: Vectors, candidates: Vectors, contents: np.ndarray) -> np.ndarray:
    """For every query, the wrong candidates that are nearer than the nearest right one, and those that are as near with
    that one, int [2,N]."""
    counts = []
    for start in range(0, queries.shape[0], _BLOCK):
        cosines = queries[start : start + _BLOCK] @ candidates.T
        cosines = cosines if isinstance(cosines, np.ndarray) else cosines.toarray()
        is_right = as_right(contents[start : start + _BLOCK], contents)
        above = cosines - np.where(is_right, cosines, -np.inf).max(1, keepdims=True)
        ties = (abs(above) <= _TIE) & ~is_right
        counts.append(np.stack([((above > _TIE) & ~is_right).sum(1), 1 + ties.sum(1)]))
    return np.concatenate(counts, axis=1)


def as_right(rows: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """The contents of query and candidate of rows [N,2] and of others [M,2] -> bool [N,M]: whether the candidate of the
    other is right for the row's query."""
    query, candidate = rows[:, :1], rows[:, 1:]
    return (candidate == candidates[:, 1]) | (query == candidates[:, 1]) | (query == candidates[:, 0])


def alignment(queries: np.ndarray, candidates: np.ndarray) -> float:
    """The mean squared distance of vectors [N,D] that belong together (Wang & Isola 2020, eq. 2)."""
    return float(np.square(queries - candidates).sum(1).mean())


def uniformity(vectors: np.ndarray) -> float:
    """The logarithm of the mean of exp(-2 d^2) over pairs of at most 2,000 vectors [N,D], whose distance is d; less is
    more evenly spread (Wang & Isola 2020, eq. 3). 0 for one vector."""
    sample = vectors[:2000].astype(np.float64)
    if len(sample) < 2:
        return 0.0
    squares = 2 - 2 * np.clip(sample @ sample.T, -1, 1)
    pairs = squares[np.triu_indices(len(sample), 1)]
    return float(np.log(np.exp(-2 * pairs).mean()))


def bags(texts: Sequence[Sequence[int] | np.ndarray], vocab: int) -> "csr_matrix":
    """The token ids of N texts -> how often each token occurs in a text, a sparse matrix [N, vocab] of rows of length
    1."""
    from scipy import sparse

    lengths = [len(text) for text in texts]
    ids = np.concatenate([*texts, np.zeros(0, np.int64)]).astype(np.int64)
    starts = np.cumsum([0, *lengths])
    counts = sparse.csr_matrix((np.ones(len(ids)), ids, starts), shape=(len(lengths), vocab))
    counts.sum_duplicates()
    norms = np.sqrt(np.asarray(counts.multiply(counts).sum(1)).ravel())
    return sparse.diags(1 / np.maximum(norms, 1e-30)) @ counts
