"""The rows of a run in phases: each phase goes on where the one before it has stopped reading.

Phases may have rows of their own, longer ones or masked otherwise. An epoch is the measure that they share: a phase
skips as many of its batches as make up the epochs that earlier phases have read. So batch n is a pure function of the
seed, n and the recipe.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from train import UserError
from train.data.corpus import Corpus
from train.data.mixture import Phase
from train.settings.schema import Run

# The settings of each phase, and its first step.
Starts = Sequence[tuple[Run, int]]

# The settings of a phase -> its rows as a corpus, read anew.
Load = Callable[[Run], Corpus]


def corpora(starts: Starts, base: Corpus, load: Load) -> list[Corpus]:
    """A corpus for each phase, whose batch n is that of the run, from the first step of the phase on.

    Phases that read the same rows share them, also with the corpus of the flags, `base`. Raises UserError for a mixture
    that has phases of its own.
    """
    by_key: dict[object, Corpus] = {_rows_key(base.run): base}
    result: list[Corpus] = []
    for run, _ in starts:
        key = _rows_key(run)
        if key not in by_key:
            by_key[key] = load(run)
        rows = by_key[key]
        result.append(Corpus(run, rows.processor, rows.train, rows.valid, rows.sizes, rows.facts()))
    _follow(result, [first for _, first in starts])
    return result


def _rows_key(run: Run) -> object:
    """What decides the rows of a run; its batch size only where batches have several shapes."""
    batch = run.batch if run.task.has_buckets else run.batch.length
    return run.task, run.data, batch, run.packs_rows


def _follow(corpora: Sequence[Corpus], firsts: Sequence[int]):
    """Lets each corpus begin behind the epochs that the ones before it read, with steps from these first ones on."""
    epochs, shares = Fraction(0), []
    for index, corpus in enumerate(corpora):
        batches = _batches(corpus)
        begins = math.ceil(epochs * batches)  # the batch of its own order with which it begins
        shares.append((Fraction(begins) / batches, _shares(corpus)))
        corpus.skipped = begins - firsts[index]
        if shares[-1][1]:
            size = corpus.run.batch.size
            corpus.shares = [Phase(int(epoch * batches * size), of_sources) for epoch, of_sources in shares]
        if index + 1 < len(corpora):
            epochs = (begins + firsts[index + 1] - firsts[index]) / batches


def _batches(corpus: Corpus) -> Fraction:
    """The batches of all training rows, of each segmentation once: whole ones, and a part of the next."""
    if buckets := [rows.buckets for rows in corpus.train if rows.buckets]:
        return Fraction(sum(bucket.batches for bucket in buckets))
    size = corpus.layout.size if corpus.layout else corpus.run.batch.size
    return Fraction(sum(map(len, corpus.train)), size)


def _shares(corpus: Corpus) -> Mapping[str, int]:
    """The shares of the sources of a corpus; none where they are not told apart."""
    if len(corpus.shares) > 1:
        raise UserError(
            f"--data.mixture={corpus.run.data.mixture} has phases of its own; say data.mixture in those of --phases"
        )
    return corpus.shares[0].shares if corpus.shares else {}
