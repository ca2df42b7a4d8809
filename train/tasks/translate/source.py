"""Sentence pairs, from two files or two columns."""

import dataclasses
from collections.abc import Sequence

from train import UserError
from train.data.sources import files, kept_pairs, sources
from train.data.sources.kept_pairs import Pair
from train.settings.schema import Data
from train.tasks.translate.options import Translate


def load_pairs(
    data: Data,
    task: Translate,
    builtin: sources.Builtin,
    log: sources.LogLine = sources.to_stderr,
    valid_only: bool = False,
) -> tuple[Sequence[Pair], Sequence[Pair], int]:
    """Pairs to train on, pairs to validate on, and the number of pairs with an empty side, which are left out. Those of
    large files stay on the disk."""
    columns = columns_of(data, task)
    source, target = columns.texts
    if not (valid_only and data.eval) and kept_pairs.is_large(data.source, data, columns):
        kept, held_out, empty = kept_pairs.load(data, columns, log)
        if empty:
            log(f"{empty:,} of {empty + len(kept) + len(held_out):,} pairs have an empty side, and are left out")
        if not data.eval:
            return kept, held_out, empty
        _, of_eval, more = load_pairs(dataclasses.replace(data, source=data.eval), task, builtin, log, True)
        return kept, of_eval, empty + more
    parts = sources.load(data, columns, builtin, log, valid_only)
    pairs = [[(row[source].strip(), row[target].strip()) for row in part] for part in parts]
    train, valid = ([pair for pair in part if all(pair)] for part in pairs)
    if empty := sum(map(len, pairs)) - len(train) - len(valid):
        log(f"{empty:,} of {sum(map(len, pairs)):,} pairs have an empty side, and are left out")
    return train, valid, empty


def columns_of(data: Data, task: Translate) -> files.Columns:
    """The columns of source and target: those of --data.field, else the languages."""
    names = tuple(data.field.split(",")) if data.field != "text" else (task.source, task.target)
    if len(names) != 2:
        raise UserError(
            f"--data.field={data.field} must name two columns, the source and the target, with a comma between"
        )
    return files.Columns(names)
