"""Data without anything to predict: a loss of 0 would look perfect."""

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from train import UserError
from train.data.corpus import AnyRows, Corpus
from train.data.fields import BatchSpec


def check_targets(
    corpus: Corpus[AnyRows], spec: BatchSpec, max_batches: int = 0, valid_flag: str = "--eval-data"
) -> None:
    """Raises UserError where no row to train on, or none of `max_batches` to validate on (0: all), has a target.

    valid_flag: the flag that names the text to validate on
    """
    names = [name for name, field in spec.items() if field.weighs]
    data = corpus.run.data
    if corpus.train:
        rows = corpus.train[0]
        count = rows.buckets.batches if rows.buckets else -(-len(rows) // corpus.run.batch.size)
        batches = (corpus.batch(n) for n in range(count * len(corpus.train)))
        _check(batches, names, f"the training data {data.source}", "--data")
    _check(corpus.valid_batches(max_batches), names, f"the validation data {data.eval or data.source}", valid_flag)


def _check(batches: Iterable[Mapping[str, np.ndarray]], names: Collection[str], source: str, flag: str):
    """Raises UserError where a field that weighs targets is 0 everywhere."""
    if names and not any((batch[name] > 0).any() for batch in batches for name in names):
        raise UserError(
            f"nothing in {source} can be predicted: its texts have no tokens, only unknown ones, or one "
            f"that nothing stands before; name other text with {flag}, or another tokenizer"
        )
