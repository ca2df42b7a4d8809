"""Files whose rows have named columns: how those of each ending are read, a row at a time."""

from collections.abc import Callable, Iterator, Mapping

from train.data.sources import columnar, records, tars
from train.data.sources.files import Reader, Row

# The ending of a file -> the function that reads its rows: path or URL, what a task reads -> rows.
ROW_FILES: Mapping[str, Callable[[str, Reader], Iterator[Row]]] = {
    ".parquet": columnar.rows,
    ".arrow": columnar.rows,
    ".tfrecord": records.tfrecord_rows,
    ".array_record": records.array_record_rows,
    ".tar": tars.rows,
}
