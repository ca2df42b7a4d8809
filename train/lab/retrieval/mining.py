"""Passages that are near to a query and do not answer it: hard negatives (Xiong et al. 2021; Moreira et al. 2024)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np

from train.lab.embedding import search
from train.lab.embedding.options import Encode, checked_vectors
from train.lab.retrieval.rankings import indexed

# Queries that meet all passages at a time.
_QUERIES = 256


class QueryPairs(NamedTuple):
    """Pairs of a query and a passage that answers it, by the numbers of different texts.

    queries, passages: the texts
    rows: int [N,2], the query and the passage of every pair
    """

    queries: list[str]
    passages: list[str]
    rows: np.ndarray

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]]) -> "QueryPairs":
        """The pairs; texts that differ in blanks around them are equal."""
        sides: list[dict[str, int]] = [{}, {}]
        rows = [
            [side.setdefault(text.strip(), len(side)) for side, text in zip(sides, pair, strict=True)] for pair in pairs
        ]
        return cls([*sides[0]], [*sides[1]], np.array(rows, np.int64).reshape(-1, 2))

    @property
    def answers(self) -> list[set[int]]:
        """The passages that answer each query."""
        answers: list[set[int]] = [set() for _ in self.queries]
        for query, passage in self.rows.tolist():
            answers[query].add(passage)
        return answers


class Scored(NamedTuple):
    """The best passages of a query: their scores, best first, and their numbers; and the scores of its answers."""

    scores: np.ndarray
    places: np.ndarray
    of_answers: np.ndarray


# Pairs, depth -> for each query in order, its best passages.
Scorer = Callable[[QueryPairs, int], Iterator[Scored]]


def negatives(pairs: QueryPairs, score: Scorer, count: int, margin: float, depth: int) -> Iterator[list[int]]:
    """For each query in order, the numbers of the best passages, `count` at most, that are no answers.

    margin: a passage with a score above p - margin * |p| may be an answer that nobody has marked, and is left out; p is
        the worst score of the answers (Moreira et al. 2024, section 4.2: a share of the positive score)
    depth: passages that are looked at
    """
    for answers, scored in zip(pairs.answers, score(pairs, depth), strict=True):
        worst = float(scored.of_answers.min())
        limit = worst - margin * abs(worst)
        is_wrong = (scored.scores <= limit) & np.array([place not in answers for place in scored.places.tolist()], bool)
        yield scored.places[is_wrong][:count].tolist()


def by_vectors(encode_queries: Encode, encode_passages: Encode, similarity: str) -> Scorer:
    """Similarities of vectors."""

    def score(pairs: QueryPairs, depth: int) -> Iterator[Scored]:
        passages = checked_vectors(encode_passages(pairs.passages), len(pairs.passages))
        queries = checked_vectors(encode_queries(pairs.queries), len(pairs.queries))
        answers = pairs.answers
        for start in range(0, len(queries), _QUERIES):
            part = queries[start : start + _QUERIES]
            values, rows = search.nearest(part, passages, min(depth, len(passages)), similarity=similarity)
            for vector, scores, places, right in zip(part, values, rows, answers[start:], strict=False):
                of_answers = search.compare(vector[None], passages[sorted(right)], similarity)[0]
                yield Scored(scores, places, np.asarray(of_answers))

    return score


def by_words(bm25s: ModuleType) -> Scorer:
    """Scores of BM25, of the library bm25s."""

    def score(pairs: QueryPairs, depth: int) -> Iterator[Scored]:
        retriever = indexed(bm25s, pairs.passages)
        tokens = bm25s.tokenize(pairs.queries, stopwords="en", show_progress=False, return_ids=False)
        count = min(depth, len(pairs.passages))
        for query, right in zip(tokens, pairs.answers, strict=True):
            scores = np.asarray(retriever.get_scores(query)) if query else np.zeros(len(pairs.passages), np.float32)
            best = np.argpartition(-scores, count - 1)[:count]
            best = best[np.lexsort((best, -scores[best]))]
            yield Scored(scores[best], best, scores[sorted(right)])

    return score


def rows_with(
    pairs: QueryPairs, columns: Sequence[str], mined: Sequence[Sequence[int]], count: int
) -> Iterator[Mapping[str, str]]:
    """The rows of a file: query and passage of each pair in their columns, and negative_1 to negative_N, some blank."""
    for query, passage in pairs.rows.tolist():
        texts = [pairs.passages[place] for place in mined[query]]
        texts += [""] * (count - len(texts))
        row = dict(zip(columns, (pairs.queries[query], pairs.passages[passage]), strict=True))
        yield row | {f"negative_{place}": text for place, text in enumerate(texts, 1)}
