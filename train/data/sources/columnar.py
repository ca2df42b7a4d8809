"""Rows of files of columns: .parquet, and the .arrow of folders that `datasets` saves; a batch of rows at a time."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from train import UserError
from train.data.sources.files import Reader, Row
from train.data.sources.opening import is_url, opened

if TYPE_CHECKING:
    import pyarrow

# Rows that are read together, and bytes of a column that are read from a file at a time: a row group may be large.
_ROWS, _BUFFER = 1024, 1 << 20


def rows(path: str, columns: Reader, together: int = _ROWS) -> Iterator[Row]:
    """The rows of a file, of which `together` are read at a time; a dot in the name of a column leads into a column of
    columns. Raises UserError for a file that is damaged, or lacks a column."""
    import pyarrow

    names = (*columns.texts, *columns.labels)
    try:
        for batch in _parquet(path, names, columns, together) if path.endswith(".parquet") else _arrow(path):
            _check(batch.schema, names, path, columns)
            values = [_column(batch, name).to_pylist() for name in names]
            for cells in zip(*values, strict=True):
                yield columns.checked(dict(zip(names, cells, strict=True)), path)
    except pyarrow.ArrowException as error:
        fault = str(error).splitlines()[0]
        raise UserError(f"{path} is damaged, or of another format ({fault}); make it again") from error


def _check(schema: "pyarrow.Schema", names: tuple[str, ...], path: str, columns: Reader) -> None:
    """Raises UserError for a column that is not there."""
    present = schema.names
    for name in names:
        if present.count(name.partition(".")[0]) > 1 or present.count(name) > 1:
            raise UserError(f"{path} has two columns {name!r}; name them apart")
        if not _has(schema, name):
            columns.checked(dict.fromkeys(present, ""), path)
            raise UserError(f"{path} has no column {name!r} (it has {', '.join(present)})")


def _has(schema: "pyarrow.Schema", name: str) -> bool:
    """Whether there is a column, or a column of a column."""
    first, *inner = name.split(".")
    if name in schema.names or first not in schema.names:
        return name in schema.names
    kind = schema.field(first).type
    for part in inner:
        kind = getattr(kind, "fields", None) and next((field.type for field in kind if field.name == part), None)
    return kind is not None


def _parquet(path: str, names: tuple[str, ...], columns: Reader, together: int) -> "Iterator[pyarrow.RecordBatch]":
    from pyarrow import parquet

    with opened(path) as file, parquet.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False) as table:
        _check(table.schema_arrow, names, path, columns)
        yield from table.iter_batches(batch_size=together, columns=list(names))


def _arrow(path: str) -> "Iterator[pyarrow.RecordBatch]":
    """Batches of a stream, as `datasets` writes them, or of a file of Arrow's other format."""
    import pyarrow
    from pyarrow import ipc

    with opened(path) as file:
        source: Any = file if is_url(path) else pyarrow.memory_map(path)
        try:
            yield from ipc.open_stream(source)
        except pyarrow.ArrowInvalid:
            source.seek(0)
            reader = ipc.open_file(source)
            yield from (reader.get_batch(index) for index in range(reader.num_record_batches))


def _column(batch: "pyarrow.RecordBatch", name: str) -> "pyarrow.Array":
    """A column, or a column of a column."""
    if name in batch.schema.names:
        return batch.column(name)
    import pyarrow.compute

    first, *inner = name.split(".")
    column = batch.column(first)
    return pyarrow.compute.struct_field(column, inner) if inner else column
