"""Hard negatives for pairs: `python -m train.mine --run=DIR|--bm25 --data=PAIRS --to=OUT.jsonl`."""

import dataclasses
from typing import TYPE_CHECKING

from tfm.options.choices import check_minimum
from train import UserError, exit_code
from train.files.lines import line_writer
from train.files.strict_json import json_text
from train.lab.embedding.options import TextEncoderOptions, open_encoders, role_prompts, similarity_of
from train.settings import flags
from train.settings.text import Data
from train.tasks import resolve
from train.tasks.table import AnyRun

if TYPE_CHECKING:
    from train.lab.retrieval.mining import QueryPairs, Scorer
    from train.screens.console import Log

USAGE = """usage: python -m train.mine --run=DIR|--bm25 [--data=PAIRS] [--data.field=query,passage] --to=OUT.jsonl

Writes every pair of a query and a passage with other passages of the data that are near to the query, by the vectors of
a model or by BM25: --data.field=query,passage,negative_1,negative_2 of --task=contrast and --task=rank reads them. A
passage that answers the query in any row is none, nor one that is nearer than its answers less a margin."""


@dataclasses.dataclass(frozen=True)
class MineOptions(TextEncoderOptions):
    """What negatives are mined with.

    data: builtin, or files of pairs; --data.field names their columns, query,passage by default
    bm25: whether BM25 ranks passages, in place of a model
    negatives: passages of a pair, at most
    margin: share of the worst score of a query's answers by which that of a negative must be lower
    depth: passages of a query that are looked at
    to: a .jsonl
    """

    data: str = "builtin"
    bm25: bool = False
    negatives: int = 4
    margin: float = 0.05
    depth: int = 100
    to: str = ""

    def __post_init__(self):
        super().__post_init__()
        check_minimum(self, negatives=1, depth=2)
        if self.bm25 and (self.run or self.encoder):
            raise ValueError("bm25 ranks passages in place of --run and --encoder; leave one of them out")
        if not 0 <= self.margin <= 1:
            raise ValueError(f"margin={self.margin} must be at least 0 and at most 1; 0.05 is usual")
        if not self.to.endswith(".jsonl"):
            raise ValueError(f"to={self.to} must name a .jsonl for the rows")

    @property
    def makes_vectors(self) -> bool:
        """Whether passages are ranked by vectors."""
        return not self.bm25


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(mine, argv)


def mine(argv):
    """Ranks the passages of all pairs for every query, and writes the pairs with the best that are wrong."""
    changes, argv = resolve.split_data_flags(argv)
    options = flags.options(MineOptions, USAGE, argv)
    if options is None:
        return

    from train.lab.retrieval import mining
    from train.screens.console import Log

    log = Log()
    data = flags.build(AnyRun, {"data.field": "query,passage", "data.source": options.data}, changes).data
    columns, pairs = _pairs(data, log)
    log.info(f"data        {data.source}: {len(pairs.queries):,} queries, {len(pairs.passages):,} passages")
    score = _scorer(options, log)
    mined = list(mining.negatives(pairs, score, options.negatives, options.margin, options.depth))
    with line_writer(options.to) as write_line:
        for row in mining.rows_with(pairs, columns, mined, options.negatives):
            write_line(json_text(row))
    fields = ",".join([*columns, *(f"negative_{place}" for place in range(1, options.negatives + 1))])
    short = sum(len(places) < options.negatives for places in mined)
    log.info(f"{short:,} queries have fewer than {options.negatives} negatives")
    log.info(f"saved in {options.to}; python -m train.main --task=contrast --data={options.to} --data.field={fields}")


def _pairs(data: Data, log: "Log") -> "tuple[tuple[str, ...], QueryPairs]":
    """The columns, and the pairs of a source; of a built-in one those to train on. Raises UserError for other columns
    than two."""
    from train.data.sources import sources
    from train.lab.retrieval import mining
    from train.tasks.contrast.source import Sides, builtin

    reader = Sides.of(data, labelled=False)
    if len(reader.texts) != 2:
        raise UserError(f"--data.field={data.field} must name two columns, those of queries and of passages")
    if data.source == "builtin":
        rows = builtin(reader)[0]
    else:
        rows = sources.read(data.source, data, reader, lambda: builtin(reader), log.info)
    pairs = [(first, second) for first, second in map(reader.texts_of, filter(reader.is_usable, rows))]
    if not pairs:
        raise UserError(f"every row of {data.source} has a blank text; correct the columns")
    return reader.texts, mining.QueryPairs.of(pairs)


def _scorer(options: MineOptions, log: "Log") -> "Scorer":
    """What ranks passages. Raises UserError for a bad folder, and without bm25s where that is to rank."""
    from train.lab.retrieval import mining

    if not options.bm25:
        of_queries, of_passages = open_encoders(options, role_prompts(options), log)
        return mining.by_vectors(of_queries, of_passages, similarity_of(options))
    from train.lab.retrieval.rankings import load_bm25s

    return mining.by_words(load_bm25s())
