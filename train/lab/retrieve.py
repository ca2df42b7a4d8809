"""Retrieval measured: `python -m train.retrieve --run=DIR [--data=FOLDER]`."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tfm.options.choices import check_minimum
from train import UserError, exit_code
from train.files.strict_json import json_text
from train.lab.embedding.options import TextEncoderOptions, open_encoders, role_prompts, similarity_of
from train.settings import flags

if TYPE_CHECKING:
    from train.data.synthetic.deals import Collection
    from train.lab.retrieval.rankings import PairScorer, Ranking
    from train.screens.console import Log

USAGE = """usage: python -m train.retrieve --run=DIR|--encoder=bow:FILE [--rerank=DIR] [--data=FOLDER] [--split=test]
                                [--to=OUT.trec]

Ranks the passages of a collection for its queries, by the vectors of a model, and prints one JSON object: nDCG@10,
MRR@10, recall@100 and MAP as trec_eval computes them. FOLDER is one of BEIR: corpus.jsonl, queries.jsonl and
qrels/SPLIT.tsv. The built-in collection has questions on deals; metrics with _withheld are of questions with
combinations that --task=contrast --data.field=query,passage,negative never trains. Beside them stands what BM25 reaches
by common words, if bm25s is installed. --rerank=DIR names a run of --task=rank or a folder of a cross-encoder, which
orders the best passages anew; without --run those of BM25. OUT.trec is what trec_eval reads."""


@dataclasses.dataclass(frozen=True)
class RetrieveOptions(TextEncoderOptions):
    """What is ranked, and where the rankings go.

    data: builtin, or a folder of BEIR
    split: which judgments of the folder: test, dev or train
    depth: passages that are ranked for a query, at most; MAP reads them all
    query_prompt: a prompt of the folder by its name, for queries; none: "query", if the folder has it
    passage_prompt: the same for passages; none: "document"
    bm25: whether BM25 is measured, too; none: where bm25s is installed
    rerank: the folder of a cross-encoder, which orders the best passages anew; its metrics begin with rerank_
    rerank_depth: passages of a query that it reads; others are left out
    to: a file for the rankings
    """

    data: str = "builtin"
    split: str = "test"
    depth: int = 1000
    query_prompt: str | None = None
    passage_prompt: str | None = None
    bm25: bool | None = None
    rerank: str = ""
    rerank_depth: int = 100
    to: str = ""

    def __post_init__(self):
        super().__post_init__()
        check_minimum(self, depth=100, rerank_depth=1)
        if Path(self.split).name != self.split:
            raise ValueError(f"split={self.split} must be the name of a file of qrels/, such as test")
        if self.prompt is not None and (self.query_prompt, self.passage_prompt) != (None, None):
            raise ValueError(f"prompt={self.prompt} is for queries and passages; leave it out, or the other two")
        if self.bm25 is False and not self.makes_vectors:
            raise ValueError("bm25=false finds no passages to order anew; name a model with --run, or leave it out")

    @property
    def makes_vectors(self) -> bool:
        """Whether passages are found by vectors: not where those of BM25 are ordered anew."""
        return bool(self.run or self.encoder or not self.rerank)


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(retrieve, argv)


def retrieve(argv):
    """Ranks all passages for every query, and measures."""
    options = flags.options(RetrieveOptions, USAGE, argv)
    if options is None:
        return
    bm25s = _bm25s(options)

    from train.lab.retrieval import collection, rankings
    from train.screens.console import Log
    from train.settings.gate import user_errors

    log = Log()
    texts = collection.read(options.data, options.split, log)
    log.info(f"data        {options.data}: {len(texts.corpus):,} passages, {len(texts.queries):,} queries")
    if options.to:
        rankings.check_names([*texts.queries, *texts.corpus])
    score = _pair_scorer(options, log)
    ranked: dict[str, dict[str, Ranking]] = {}
    if options.makes_vectors:
        with user_errors(f"--run={options.run}"):
            ranked[""] = _by_model(options, texts, log)
    if bm25s:
        ranked["bm25_"] = rankings.by_words(bm25s, texts.corpus, texts.queries, options.depth)
    if score:
        first = next(iter(ranked.values()))
        ranked["rerank_"] = rankings.by_pairs(score, texts.corpus, texts.queries, first, options.rerank_depth)
    result = {
        f"{kind}{name}": value for kind, ranking in ranked.items() for name, value in _means(ranking, texts).items()
    }
    if options.to:
        rankings.write(options.to, ranked["rerank_" if score else ""], "tfm")
        log.info(f"saved in {options.to}")
    print(json_text(result | {"queries": len(texts.queries), "passages": len(texts.corpus)}))


def _bm25s(options: RetrieveOptions) -> ModuleType | None:
    """The library of BM25, if it is wanted. Raises UserError where it is asked for and absent."""
    if options.bm25 is False:
        return None
    from train.lab.retrieval.rankings import load_bm25s

    try:
        return load_bm25s()
    except UserError:
        if options.bm25 or not options.makes_vectors:
            raise
        return None


def _pair_scorer(options: RetrieveOptions, log: "Log") -> "PairScorer | None":
    """The cross-encoder of --rerank. Raises UserError where the folder holds none."""
    if not options.rerank:
        return None
    from train.lab.retrieval.reranking import pair_scorer

    return pair_scorer(options.rerank, log)


def _by_model(options: RetrieveOptions, texts: "Collection", log: "Log") -> "dict[str, Ranking]":
    """The rankings of the model, with the prompts of both roles."""
    from train.lab.embedding.late import LateEncoder, is_late
    from train.lab.retrieval import rankings

    if is_late(options):
        if (options.query_prompt, options.passage_prompt) != (None, None):
            raise UserError(f"the prompts of {options.run} are those of its training; leave them out")
        return rankings.by_late(LateEncoder(options, log), texts.corpus, texts.queries, options.depth)
    of_queries, of_passages = open_encoders(options, _prompts(options), log)
    return rankings.by_vectors(
        of_queries, of_passages, texts.corpus, texts.queries, options.depth, similarity_of(options)
    )


def _prompts(options: RetrieveOptions) -> tuple[str | None, str | None]:
    """The names of the prompts of queries and of passages: those of flags, or those that the folder has."""
    query, passage = role_prompts(options)
    return (
        query if options.query_prompt is None else options.query_prompt,
        passage if options.passage_prompt is None else options.passage_prompt,
    )


def _means(ranked: "Mapping[str, Ranking]", texts: "Collection") -> dict[str, float]:
    """Mean metrics of the queries, and with `_withheld` those of withheld ones, five digits after the point."""
    from train.lab.retrieval.measures import measure
    from train.lab.retrieval.rankings import mean_metrics

    metrics = {query: measure(ranked[query], texts.qrels[query]) for query in texts.queries}
    result: dict[str, float] = {}
    for ending, is_withheld in (("", False), ("_withheld", True)):
        queries = [query for query in texts.queries if texts.withheld.get(query, False) == is_withheld]
        if queries:
            means = mean_metrics(metrics, queries)
            result |= {f"{name}{ending}": round(value, 5) for name, value in means.items()}
    return result
