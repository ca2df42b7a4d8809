"""The row of tokens whose attention train.predict draws: the row in which a task reads a text."""

from collections.abc import Sequence

import numpy as np

from train.data import pairs
from train.data.tokens import in_memory
from train.settings.predict import PredictOptions
from train.tasks.record import AttendedRow, Folder
from train.text import pair_types, tokenize


def joined(folder: Folder, *texts: str) -> AttendedRow:
    """One text or two, with [CLS] and [SEP] around them; what is too long for a row of training is cut."""
    tokenizer = folder.processor
    encoded = in_memory(tokenizer, list(texts))
    specials, separators = tokenize.special_tokens(tokenizer), tokenize.pair_separators(tokenizer)
    ids = [encoded[index] for index in range(len(texts))]
    row, second = pairs.join(ids, folder.config.batch.length, specials, separators)
    return AttendedRow(row, second if pair_types.second_type(tokenizer) else len(row))


def text_alone(options: PredictOptions, folder: Folder) -> AttendedRow:
    """The text of --text."""
    return joined(folder, options.text)


def unmarked(ids: Sequence[int] | np.ndarray) -> AttendedRow:
    """A row of these tokens, with nothing around them."""
    return AttendedRow(np.asarray(ids, np.int32), len(ids))
