"""Texts near to queries, in an index: `python -m train.search --index=FOLDER --query=TEXT`."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tfm.options.choices import check_fields, check_minimum
from train import UserError, exit_code
from train.files.lines import line_writer
from train.files.strict_json import json_text
from train.settings import flags

if TYPE_CHECKING:
    from train.lab.embedding.index import IndexFolder

# Scores of texts, best first, and their rows.
Hits = tuple[np.ndarray, np.ndarray]

USAGE = """usage: python -m train.search --index=FOLDER --query=TEXT|--file=QUERIES.txt [--nearest=10] [--to=OUT.jsonl]

Prints similarity, line and text of the texts that are nearest to a query, best first, from an index that
python -m train.embed --index=FOLDER made. Queries are encoded as its texts were, with the prompt of queries if the
folder of the model has one. All vectors are compared, in blocks on the device; they stay on the disk. Of an index of
--task=late, texts with tokens near to those of the query are ranked by all of their tokens."""


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """What is looked for, and where.

    index: the folder of the index
    query: a text
    file: in its place, a file with a query a line; answers are then a line of JSON each
    nearest: texts that are printed for a query
    exact: whether an index with a graph (hnsw) compares all vectors, too
    run: where the model lies now; empty: where it lay when the index was made
    to: a file for the answers
    """

    index: str = ""
    query: str = ""
    file: str = ""
    nearest: int = 10
    exact: bool = False
    run: str = ""
    to: str = ""

    def __post_init__(self):
        check_fields(self)
        if not self.index:
            raise ValueError("index=FOLDER must name an index")
        if bool(self.query.strip()) == bool(self.file):
            raise ValueError("query=TEXT or --file=QUERIES.txt must say what to look for, one of the two")
        check_minimum(self, nearest=1)


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(answer, argv)


def answer(argv):
    """Encodes the queries, compares them with all texts, and prints the nearest."""
    options = flags.options(SearchOptions, USAGE, argv)
    if options is None:
        return

    from train.lab.embedding.index import IndexFolder

    index, queries = IndexFolder(options.index), _queries(options)
    hits = _by_tokens(options, queries) if index.facts.get("kind") == "late" else _by_vectors(options, queries)
    with line_writer(options.to) as write_line:
        for query, (scores, places) in zip(queries, hits, strict=True):
            for line in _lines(query, scores.tolist(), places.tolist(), index, is_json=bool(options.file)):
                write_line(line)


def _by_vectors(options: SearchOptions, queries: list[str]) -> "Iterator[Hits]":
    """The nearest texts of each query, by all vectors."""
    from train.lab.embedding import search
    from train.lab.embedding.approximate import nearest_of_graph
    from train.lab.embedding.index import Index
    from train.lab.embedding.options import checked_vectors, open_encoder
    from train.screens.console import Log
    from train.settings.gate import user_errors

    index = Index(options.index)
    vectors = checked_vectors(open_encoder(index.query_options(options.run), Log())(queries), len(queries))
    count = min(options.nearest, len(index))
    similarity = str(index.facts.get("similarity"))
    with user_errors(f"--index={options.index}"):
        if index.facts.get("kind") == "hnsw" and not options.exact:
            values, rows = nearest_of_graph(index.path, vectors, count, similarity)
        else:
            values, rows = search.nearest(vectors, index, count, similarity=similarity)
    if not np.isfinite(values).all():
        raise UserError(f"--index={options.index} has vectors that are not finite; make it again")
    yield from zip(values, rows, strict=True)


def _by_tokens(options: SearchOptions, queries: list[str]) -> "Iterator[Hits]":
    """The nearest texts of each query, by vectors of tokens."""
    from train.lab.embedding.late import LateEncoder
    from train.lab.embedding.late_index import LateIndex
    from train.screens.console import Log

    index = LateIndex(options.index)
    for vectors in LateEncoder(index.encoder_options(options.run), Log()).queries(queries):
        yield index.search(vectors, min(options.nearest, len(index)))


def _queries(options: SearchOptions) -> list[str]:
    """The queries. Raises UserError for a file with an empty line, and for an empty one."""
    if options.query:
        return [options.query]
    from train.data.sources import files

    queries = files.read_lines(Path(options.file))
    empty = next((place for place, query in enumerate(queries, 1) if not query.strip()), None)
    if empty or not queries:
        raise UserError(f"query {empty or 1} of {options.file} is empty; every query must say something")
    return queries


def _lines(query: str, scores: list[float], places: list[int], index: "IndexFolder", is_json: bool) -> list[str]:
    """Lines of a person, or a line of JSON."""
    hits = list(zip(scores, places, index.texts(places), strict=True))
    if not is_json:
        return [f"{score:.4f}\t{place + 1}\t{text}" for score, place, text in hits]
    nearest = [{"line": place + 1, "score": score, "text": text} for score, place, text in hits]
    return [json_text({"query": query, "nearest": nearest})]
