"""Series in tables and arrays, and sentences for those with gaps."""

import numpy as np
import pytest

from train import UserError
from train.series import files, synthetic


def test_tables_and_arrays(tmp_path):
    (tmp_path / "a.csv").write_text("date,load,wind\n2024-01-01,1,2.5\n2024-01-02,-3,4e2\n")
    (tmp_path / "b.tsv").write_text("load\n7\n8\n")
    np.savez(tmp_path / "c.npz", one_series=np.arange(3), many=np.ones((2, 4), np.float32))
    assert {name: list(values) for name, values in files.read(str(tmp_path / "a.csv"), "all").items()} == {
        "load": [1, -3],
        "wind": [2.5, 400],
    }
    assert list(files.read(str(tmp_path / "a.csv"), "wind")) == ["wind"]
    assert list(files.read(str(tmp_path / "?.[ct]sv"), "load")) == ["a/load", "b/load"]
    arrays = files.read(str(tmp_path / "c.npz"), "all")
    assert {name: len(values) for name, values in arrays.items()} == {"one_series": 3, "many-0": 4, "many-1": 4}


@pytest.mark.parametrize(
    ("name", "content", "field", "sentence"),
    [
        ("a.csv", "x,y\n1,2\n,3\n", "all", "a.csv, line 3, has nothing in the column 'x'; fill the gap, or name other"),
        ("a.csv", "x\n1\nnan\n", "all", "a.csv, line 3, has 'nan' in the column 'x'; fill the gap"),
        ("a.csv", "x\n1\n2,3\n", "all", "a.csv, line 3, has 2 columns, and the first line names 1"),
        ("a.csv", "day\nMonday\n", "all", r"a.csv has no column of numbers \(it has day\)"),
        ("a.csv", "day\nMonday\n", "load", r"a.csv has no column 'load' \(it has day\); name it with --data.field"),
        ("a.csv", "x\n", "all", "a.csv has no values under its first line"),
        ("a.npz", "no archive", "all", "a.npz is not a whole .npz file of arrays"),
        ("a.txt", "1\n2\n", "all", "a.txt is no table .* and no .npz of series; name another file"),
    ],
)
def test_bad_files(name, content, field, sentence, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=sentence):
        files.read(str(tmp_path / name), field)


def test_bad_arrays(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.array([[1.0, 2], [3, np.nan]]))
    with pytest.raises(UserError, match=r"a.npz, x, series 1, has nan at 1; fill the gap"):
        files.read(str(path), "all")
    np.savez(path, x=np.ones((2, 2, 2)))
    with pytest.raises(UserError, match=r"x is float64 \[2, 2, 2\]; series are numbers \[T\] or \[N,T\]"):
        files.read(str(path), "all")
    with pytest.raises(UserError, match="no file matches 'nowhere'; give a .csv, a .tsv, an .npz"):
        files.read("nowhere", "all")


def test_built_in_series_are_always_the_same():
    series = synthetic.generate(3, 200)
    assert [len(values) for values in series.values()] == [200] * 3
    again = synthetic.generate(3, 200)
    assert all((values == again[name]).all() for name, values in series.items())
