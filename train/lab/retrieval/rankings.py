"""Rankings of passages for queries: by vectors, by common words, and the files that trec_eval reads."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from train import UserError
from train.files.lines import line_writer
from train.lab.embedding import search
from train.lab.embedding.late import LateEncoder, nearest_late
from train.lab.embedding.options import Encode, checked_vectors

if TYPE_CHECKING:
    from bm25s import BM25

# Of a query, the scores of passages.
Ranking = Mapping[str, float]

# Queries with passages -> a score of each.
PairScorer = Callable[[Sequence[tuple[str, str]]], Iterable[float]]

# Queries that meet all passages at a time.
_QUERIES = 256


def in_order(ranking: Ranking) -> list[str]:
    """Passages, best first. Of equal scores in float32, the larger id comes first, as in trec_eval."""
    return sorted(ranking, key=lambda name: (np.float32(ranking[name]), name), reverse=True)


def by_vectors(
    encode_queries: Encode,
    encode_passages: Encode,
    corpus: Mapping[str, str],
    queries: Mapping[str, str],
    depth: int,
    similarity: str,
) -> dict[str, Ranking]:
    """The `depth` nearest passages of each query. A passage with the id of the query is none of them, as in BEIR.

    Passages without text are never near. Raises UserError as the encoders do.
    """
    names = _names_with_text(corpus)
    passages = checked_vectors(encode_passages([corpus[name] for name in names]), len(names))
    vectors = checked_vectors(encode_queries([*queries.values()]), len(queries))
    rankings: dict[str, Ranking] = {}
    query_names = list(queries)
    for start in range(0, len(vectors), _QUERIES):
        part = vectors[start : start + _QUERIES]
        values, rows = search.nearest(part, passages, min(depth + 1, len(names)), similarity=similarity)
        rankings |= _named(query_names[start : start + _QUERIES], names, values, rows, depth)
    return rankings


def by_late(
    encoder: LateEncoder, corpus: Mapping[str, str], queries: Mapping[str, str], depth: int
) -> dict[str, Ranking]:
    """The same by vectors of tokens, exactly (`train.lab.embedding.late`)."""
    names = _names_with_text(corpus)
    passages = encoder.passages([corpus[name] for name in names])
    values, rows = nearest_late(encoder.queries([*queries.values()]), passages, min(depth + 1, len(names)))
    return _named(list(queries), names, values, rows, depth)


def _names_with_text(corpus: Mapping[str, str]) -> list[str]:
    """In this order, equal similarities are cut off as trec_eval would. Raises UserError where no passage has text."""
    names = sorted((name for name in corpus if corpus[name].strip()), reverse=True)
    if not names:
        raise UserError("no passage has text; look at corpus.jsonl")
    return names


def _named(
    queries: Sequence[str], names: Sequence[str], values: np.ndarray, rows: np.ndarray, depth: int
) -> dict[str, Ranking]:
    """Scores and places of passages [N,count] -> the rankings of N queries."""
    return {
        query: _without_itself(query, {names[place]: score for place, score in zip(places, scores, strict=True)}, depth)
        for query, scores, places in zip(queries, values.tolist(), rows.tolist(), strict=True)
    }


def by_words(
    bm25s: ModuleType, corpus: Mapping[str, str], queries: Mapping[str, str], depth: int
) -> dict[str, Ranking]:
    """The same by BM25 (k1 = 1.5, b = 0.75, English stop words left out), of the library bm25s."""
    names = list(corpus)
    retriever, count = indexed(bm25s, corpus.values()), min(depth + 1, len(names))
    places, scores = retriever.retrieve(_words(bm25s, queries.values()), k=count, show_progress=False)
    return {
        query: _without_itself(query, {names[place]: float(score) for place, score in zip(*row, strict=True)}, depth)
        for query, row in zip(queries, zip(places.tolist(), scores.tolist(), strict=True), strict=True)
    }


def by_pairs(
    score: PairScorer,
    corpus: Mapping[str, str],
    queries: Mapping[str, str],
    rankings: Mapping[str, Ranking],
    depth: int,
) -> dict[str, Ranking]:
    """The best `depth` passages of each ranking, with the scores of a model that reads them with their query."""
    names = [(query, passage) for query, ranking in rankings.items() for passage in in_order(ranking)[:depth]]
    scored: dict[str, dict[str, float]] = {query: {} for query in rankings}
    pairs = [(queries[query], corpus[passage]) for query, passage in names]
    for (query, passage), value in zip(names, score(pairs), strict=True):
        scored[query][passage] = value
    return dict(scored)


def load_bm25s() -> ModuleType:
    """The library of BM25, which says nothing beside errors. Raises UserError where it is absent."""
    try:
        import bm25s
    except ImportError as error:
        raise UserError('BM25 needs bm25s; install it with: pip install "tfm[retrieve]"') from error
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s


def indexed(bm25s: ModuleType, texts: Iterable[str]) -> "BM25":
    """What ranks these texts."""
    retriever = bm25s.BM25()
    retriever.index(_words(bm25s, texts), show_progress=False)
    return retriever


def _words(bm25s: ModuleType, texts: Iterable[str]) -> object:
    """The words of texts as BM25 compares them."""
    return bm25s.tokenize(list(texts), stopwords="en", show_progress=False)


def _without_itself(query: str, ranking: Ranking, depth: int) -> Ranking:
    return {name: ranking[name] for name in [name for name in in_order(ranking) if name != query][:depth]}


def check_names(names: Iterable[str]):
    """Raises UserError for an id that a file of trec_eval cannot have."""
    if odd := next((name for name in names if len(name.split()) != 1 or name != name.strip()), None):
        raise UserError(f"the _id {odd!r} has a blank, which parts the fields of the file of --to; leave --to out")


def write(to: str, rankings: Mapping[str, Ranking], label: str):
    """A file of trec_eval: query, Q0, passage, rank, score and a label a line."""
    with line_writer(to) as write_line:
        for query, ranking in rankings.items():
            for rank, name in enumerate(in_order(ranking), 1):
                write_line(f"{query} Q0 {name} {rank} {ranking[name]:.6f} {label}")


def mean_metrics(metrics: Mapping[str, Mapping[str, float]], queries: Sequence[str]) -> dict[str, float]:
    """Means over some of the queries."""
    names = next(iter(metrics.values()))
    return {name: float(np.mean([metrics[query][name] for query in queries])) for name in names}
