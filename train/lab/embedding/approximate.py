"""A graph of near vectors, in which a search meets few of them (Malkov & Yashunin 2018): HNSW of the library faiss.

The only file that needs its package, `faiss-cpu`.
"""

from pathlib import Path
from types import ModuleType

import numpy as np

from train import UserError
from train.lab.embedding.search import normalize

GRAPH = "graph.faiss"

# Neighbours of a vector, vectors that are compared where one is put in, and where one is looked for.
_NEIGHBOURS, _BUILDING, _SEARCHING = 32, 128, 128

# Vectors that are put in at a time.
_BLOCK = 1 << 16


def load_faiss() -> ModuleType:
    """The library. Raises UserError where it is absent."""
    try:
        import faiss
    except ImportError as error:
        raise UserError('--index-kind=hnsw needs faiss; install it with: pip install "tfm[index]"') from error
    return faiss


def write_graph(folder: Path, vectors: np.ndarray, similarity: str):
    """Writes the graph of vectors float32 [N,D]. Raises UserError for a similarity that it does not have."""
    if similarity not in ("cosine", "dot"):
        raise UserError(
            f"--index-kind=hnsw has no {similarity} (similarity_fn_name of the folder); say float32 or int8"
        )
    faiss = load_faiss()
    graph = faiss.IndexHNSWFlat(vectors.shape[1], _NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = _BUILDING
    for start in range(0, len(vectors), _BLOCK):
        part = np.asarray(vectors[start : start + _BLOCK], np.float32)
        graph.add(normalize(part) if similarity == "cosine" else part)
    faiss.write_index(graph, str(folder / GRAPH))


def nearest_of_graph(folder: Path, queries: np.ndarray, count: int, similarity: str) -> tuple[np.ndarray, np.ndarray]:
    """queries [Q,D] -> similarities float32 [Q,count], best first, and their rows int [Q,count]; some that are nearer
    may lack. Raises UserError for a graph that is absent or damaged, and for queries of another size."""
    faiss, path = load_faiss(), folder / GRAPH
    try:
        graph = faiss.read_index(str(path))
    except RuntimeError as error:
        raise UserError(f"{path} is absent or damaged; make the index again") from error
    if graph.d != queries.shape[1]:
        raise UserError(f"queries have {queries.shape[1]} numbers, and {path} has {graph.d}; encode both alike")
    graph.hnsw.efSearch = max(_SEARCHING, 2 * count)
    asked = normalize(queries) if similarity == "cosine" else np.asarray(queries, np.float32)
    return graph.search(asked, count)
