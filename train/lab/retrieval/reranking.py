"""The scores of pairs by a cross-encoder of a folder."""

from collections.abc import Iterator, Sequence

from tfm.low_rank import merge_low_rank
from train import UserError
from train.lab.retrieval.rankings import PairScorer
from train.runs.run_folder import open_folder
from train.screens.console import Log
from train.tasks.rank.predict import scores
from train.text import control_tokens

# Pairs of a batch, of full length.
_BATCH = 64


def pair_scorer(path: str, log: Log) -> PairScorer:
    """The function from queries with passages to their scores. Raises UserError for a folder of another task."""
    folder = open_folder(path)
    if folder.config.task.name != "rank":
        raise UserError(f"--rerank={path} holds a model of --task={folder.config.task.name}; name a run of --task=rank")
    params = merge_low_rank(folder.load(log=log.info))

    def score(pairs: Sequence[tuple[str, str]]) -> Iterator[float]:
        with control_tokens.reading(folder.config.data.control_tokens):
            yield from scores(params, folder, pairs, log, _BATCH)

    return score
