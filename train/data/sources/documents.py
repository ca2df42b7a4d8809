"""Plain text for language models: documents to train on and documents to validate on."""

from train import UserError
from train.data.sources import builtin, sources
from train.settings.schema import Data


def load(data: Data, task: str, valid_only: bool = False) -> tuple[list[str], list[str]]:
    """The documents that the options describe, by default English that every Python brings along.

    `valid_only` leaves out those to train on where there is a source of those to validate on. Raises UserError for
    more than one column.
    """
    columns = sources.Columns.of(data, labelled=False)
    column = columns.texts[0]
    if len(columns.texts) > 1:
        raise UserError(f"--data.field={data.field} names {len(columns.texts)} columns, and --task={task} reads one")
    of_python = lambda: sources.train_valid_split([{column: document} for document in builtin.documents()], columns)
    train, valid = ([row[column] for row in rows] for rows in sources.load(data, columns, of_python, valid_only))
    return train, valid
