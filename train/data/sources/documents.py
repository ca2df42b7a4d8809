"""Plain text for language models: training documents and validation documents."""

from train import UserError
from train.data.sources import builtin, files, sources
from train.settings.schema import Data


def load(data: Data, log: sources.LogLine = sources.to_stderr, valid_only: bool = False) -> tuple[list[str], list[str]]:
    """Training and validation documents, by default English text that comes with Python.

    `valid_only` leaves out training documents if --eval-data has a source of its own. Raises UserError for several
    columns.
    """
    columns = files.Columns.of(data, labelled=False)
    column = columns.texts[0]
    if len(columns.texts) > 1:
        raise UserError(
            f"--data.field={data.field} names {len(columns.texts)} columns, and only one can be read; leave one"
        )

    def of_python() -> tuple[list[files.Row], list[files.Row]]:
        return sources.train_valid_split([{column: document} for document in builtin.documents()], columns)

    train, valid = ([row[column] for row in rows] for rows in sources.load(data, columns, of_python, log, valid_only))
    return train, valid
