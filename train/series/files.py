"""Series in files: a column each of a table, or arrays."""

import csv
import glob
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from train import UserError
from train.data.sources.text import read_text
from train.series import synthetic

TABLES = {".csv": ",", ".tsv": "\t"}

# What --data.field says where every column of numbers is a series.
ALL = "all"


def read(source: str, field: str) -> dict[str, np.ndarray]:
    """The series float64 [T] of a source, by name; `field` names the columns of a table, with commas between.

    Raises UserError for a source without series, and for gaps in them.
    """
    if source == "builtin":
        return synthetic.generate()
    paths = [Path(name) for name in sorted(glob.glob(source, recursive=True))]
    if not paths:
        raise UserError(f"no file matches {source!r}; give a .csv, a .tsv, an .npz, a quoted glob of them, or builtin")
    series: dict[str, np.ndarray] = {}
    for path in paths:
        prefix = f"{path.stem}/" if len(paths) > 1 else ""
        series |= {f"{prefix}{name}": values for name, values in _read_file(path, field).items()}
    return series


def _read_file(path: Path, field: str) -> dict[str, np.ndarray]:
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if kind == ".npz":
        return _read_arrays(path)
    if kind not in TABLES:
        raise UserError(f"{path} is no table ({', '.join(TABLES)}) and no .npz of series; name another file")
    lines = list(csv.reader(read_text(path).splitlines(), delimiter=TABLES[kind]))
    if len(lines) < 2:
        raise UserError(f"{path} has no values under its first line, the names of its columns; check the file")
    names, rows = lines[0], lines[1:]
    for line, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise UserError(f"{path}, line {line}, has {len(row)} columns, and the first line names {len(names)}")
    chosen = names if field == ALL else field.split(",")
    if missing := [name for name in chosen if name not in names]:
        raise UserError(f"{path} has no column {missing[0]!r} (it has {', '.join(names)}); name it with --data.field")
    columns = {name: [row[names.index(name)] for row in rows] for name in chosen}
    series = {
        name: _numbers(path, name, cells)
        for name, cells in columns.items()
        if field != ALL or any(_number(cell) is not None for cell in cells)
    }
    if not series:
        raise UserError(f"{path} has no column of numbers (it has {', '.join(names)}); check the file")
    return series


def _number(cell: str) -> float | None:
    """The finite number that a cell is; None of any other."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _numbers(path: Path, name: str, cells: list[str]) -> np.ndarray:
    """The values of a column. Raises UserError for a gap."""
    values = [_number(cell) for cell in cells]
    for line, (cell, value) in enumerate(zip(cells, values, strict=True), 2):
        if value is None:
            shown = repr(cell[:20]) if cell.strip() else "nothing"
            raise UserError(
                f"{path}, line {line}, has {shown} in the column {name!r}; fill the gap, or name other columns "
                "with --data.field"
            )
    return np.array(values, np.float64)


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz: [T], a series, or [N,T], N of them. Raises UserError for other arrays, and for gaps."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            content: Mapping[str, np.ndarray] = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not a whole .npz file of arrays ({error}); save it again") from error
    series = {}
    for name, array in content.items():
        if array.ndim not in (1, 2) or array.dtype.kind not in "iuf":
            raise UserError(f"{path}, {name} is {array.dtype} {list(array.shape)}; series are numbers [T] or [N,T]")
        for index, values in enumerate(np.atleast_2d(array).astype(np.float64)):
            if not np.isfinite(values).all():
                place = int(np.flatnonzero(~np.isfinite(values))[0])
                raise UserError(f"{path}, {name}, series {index}, has {values[place]} at {place}; fill the gap")
            series[name if array.ndim == 1 else f"{name}-{index}"] = values
    if not series:
        raise UserError(f"{path} holds no array; save series in it")
    return series
