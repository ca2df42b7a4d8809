"""Text: where it comes from, what a document is, and which part validates."""

import gzip
import json
import os
import re
import subprocess
import sys

import pytest

from train import UserError
from train.data.sources import builtin, files, opening, sources
from train.files import cache
from train.settings.schema import Data

TEXT = files.Columns(("text",))


def of_python():
    return sources.train_valid_split([{"text": document} for document in builtin.documents()], TEXT)


def read(path, **options):
    data = Data(**options)
    columns = files.Columns.of(data, labelled=False)
    return [row[data.field] for row in sources.read(str(path), data, columns, of_python)]


def train_valid_split(texts):
    return tuple(
        [row["text"] for row in rows] for rows in sources.train_valid_split([{"text": text} for text in texts], TEXT)
    )


def table(path, **options):
    data = Data(**options)
    return sources.read(str(path), data, files.Columns.of(data, labelled=True), of_python)


@pytest.mark.parametrize(
    ("split", "documents"),
    [
        ("file", ["one\ntwo\n\n\nthree\n  \nfour\n"]),
        ("line", ["one", "two", "three", "four"]),
        ("blank-line", ["one\ntwo", "three", "four\n"]),
    ],
)
def test_txt_splits(tmp_path, split, documents):
    (tmp_path / "a.txt").write_text("one\ntwo\n\n\nthree\n  \nfour\n")
    assert read(tmp_path / "a.txt", split=split) == documents


def test_urls_become_stores():
    with pytest.raises(UserError, match=r"gs://bucket/a.txt is a URL, which train.prepare alone reads; make a store"):
        read("gs://bucket/a.txt")


def test_crlf_and_bom(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\r\nthr\xc3\xa9e\r\n")
    assert read(tmp_path / "a.txt") == ["one\ntwo\n\nthrée\n"]
    assert read(tmp_path / "a.txt", split="blank-line") == ["one\ntwo", "thrée\n"]
    assert read(tmp_path / "a.txt", split="line") == ["one", "two", "thrée"]


def test_jsonl(tmp_path):
    lines = [{"text": "one\ntwo", "body": "x"}, {"text": "  ", "body": "y"}, {"text": "thr\u2028ee", "body": "z"}]
    (tmp_path / "a.jsonl").write_text(
        "\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8"
    )
    assert read(tmp_path / "a.jsonl") == ["one\ntwo", "thr\u2028ee"]
    assert read(tmp_path / "a.jsonl", field="body") == ["x", "y", "z"]


def test_gz(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("héllo\r\nyou".encode()))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "there"}\n'))
    assert read(tmp_path / "a.txt.gz") == ["héllo\nyou"]
    assert read(tmp_path / "b.jsonl.gz") == ["there"]


def test_glob_takes_files_in_the_order_of_their_names(tmp_path):
    for name in ("c", "a", "b"):
        (tmp_path / f"{name}.txt").write_text(name)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "d.txt").write_text("d")
    (tmp_path / "other.md").write_text("no")
    assert read(tmp_path / "*.txt") == ["a", "b", "c"]
    assert read(tmp_path / "**" / "*.txt") == ["a", "b", "c", "d"]
    with pytest.raises(UserError, match=r"other\.md is not a \.txt, \.jsonl, \.tsv, \.csv file"):
        read(tmp_path / "*.*")


def test_hold_out_of_one_document_is_its_last_tenth():
    text = "".join(chr(ord("a") + n % 26) for n in range(1000))
    assert train_valid_split([text]) == ([text[:900]], [text[900:]])


def test_hold_out_of_many_documents_goes_by_hash():
    documents = [f"document {n}" for n in range(2000)]
    train, valid = train_valid_split(documents)
    assert sorted(train + valid) == sorted(documents)
    assert abs(len(valid) - 203) < 5 * (2000 * 0.1 * 0.9) ** 0.5, "26 of 256 first bytes are multiples of 10"
    assert train_valid_split(documents) == (train, valid)
    assert set(train_valid_split(documents[::-1])[1]) == set(valid), "not by place"
    assert set(valid[:50]) <= set(train_valid_split([*documents, "another"])[1]), "not by number"


def test_hold_out_leaves_something_on_both_sides():
    train, valid = train_valid_split([f"document {n}" for n in range(200)])
    for documents in (
        train[:2],
        valid[:2],
        valid[:10],
        [train[0], valid[0]],
    ):  # none, all, all and one of them chosen by hash
        assert all(train_valid_split(documents)), documents


def test_lines_of_a_blank_file(tmp_path):
    path = tmp_path / "blank.txt"
    for text in ("", "\n", " \n\n"):
        path.write_text(text)
        with pytest.raises(UserError, match=r"blank\.txt holds no text; check the file, or choose another"):
            files.read_lines(path)
    path.write_text("a\n\nb\n")
    assert files.read_lines(path) == ["a", "", "b"]


def test_byte_order_marks_of_files_that_were_joined(tmp_path, monkeypatch):
    """They are no part of the first word of a line, however the file is read; within a line they are text."""
    path = tmp_path / "joined.txt"
    path.write_bytes("\ufeffone\r\n\ufefftwo\n\ufeff\nthr\ufeffee\r\ufefffour".encode())
    expected = ["one", "two", "", "thr\ufeffee", "four"]
    assert files.read_lines(path) == [line for _, line in opening.lines(str(path))] == expected
    for size in range(1, 9):
        monkeypatch.setattr(opening, "CHUNK", size)
        assert "".join(opening.chunks_of(str(path))) == "\n".join(expected)


def test_hold_out_needs_two_texts():
    columns = files.Columns(("text",), ("label",))
    for rows in ([{"text": "a", "label": "b"}], [{"text": "a", "label": label} for label in "bc"]):
        with pytest.raises(UserError, match="the same, and validation needs different"):
            sources.train_valid_split(rows, columns)
    with pytest.raises(UserError, match="all rows of the data are the same"):
        sources.train_valid_split([{"a": "one", "b": "two"}], files.Columns(("a", "b")))


def test_hold_out_keeps_equal_documents_on_one_side():
    train, valid = train_valid_split([f"document {n % 10}" for n in range(100)])
    assert train
    assert valid
    assert not set(train) & set(valid)


def test_eval_data_takes_the_place_of_the_hold_out(tmp_path):
    (tmp_path / "a.txt").write_text("train")
    (tmp_path / "b.txt").write_text("valid")
    data = Data(str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))
    assert sources.load(data, TEXT, of_python) == ([{"text": "train"}], [{"text": "valid"}])
    assert sources.load(data, TEXT, of_python, valid_only=True) == ([], [{"text": "valid"}])


@pytest.mark.slow
def test_builtin():
    documents = builtin.documents()
    text = "\n".join(documents)
    assert 1_000_000 < len(text) < 10_000_000
    assert len(documents) > 300
    assert len(set(documents)) == len(documents)
    assert all(document == document.strip() != "" for document in documents)
    assert not re.search(r"([^\w\s])\1", text), "runs of a punctuation mark become one"
    train, valid = train_valid_split(documents)
    assert 0.03 < sum(map(len, valid)) / len(text) < 0.3
    assert not set(train) & set(valid)


@pytest.mark.slow
def test_builtin_is_the_same_in_every_process(tmp_path):
    program = (
        "from train.files import cache; from train.data.sources import builtin; "
        "print(cache.digest(builtin.documents()))"
    )
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7", "TFM_CACHE": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True, text=True)
    assert result.stdout.strip() == cache.digest(builtin.documents())


# Tables


def test_tables_are_read_by_the_names_of_their_columns(tmp_path):
    (tmp_path / "a.tsv").write_text('label\tsentence\n1\tsaid "yes, again\n\n0\tno\n')
    (tmp_path / "a.csv").write_text('sentence,id,label\n"said ""yes"", again",7,1\n"two\nlines",8,0\n')
    (tmp_path / "a.jsonl").write_text(
        '{"sentence": "yes", "label": 1}\n{"sentence": "no", "label": ["a", "b"], "other": null}\n'
    )
    wanted = {
        "tsv": [('said "yes, again', "1"), ("no", "0")],
        "csv": [('said "yes", again', "1"), ("two\nlines", "0")],
        "jsonl": [("yes", 1), ("no", ["a", "b"])],
    }
    for kind, rows in wanted.items():
        assert table(tmp_path / f"a.{kind}", field="sentence") == [
            {"sentence": text, "label": label} for text, label in rows
        ]
        assert read(tmp_path / f"a.{kind}", field="sentence") == [text for text, _ in rows], "a text needs no label"


def test_pairs_and_several_labels(tmp_path):
    (tmp_path / "a.tsv").write_text("one\ttwo\trude\tkind\na\tb\t1\t0\n")
    assert table(tmp_path / "a.tsv", field="one,two", label="rude,kind") == [
        {"one": "a", "two": "b", "rude": "1", "kind": "0"}
    ]


def test_without_a_header_the_first_column_is_text_and_the_last_the_label(tmp_path):
    (tmp_path / "a.tsv").write_text("good film\tx\t1\nbad film\ty\t0\n")
    assert table(tmp_path / "a.tsv", header=False) == [
        {"text": "good film", "label": "1"},
        {"text": "bad film", "label": "0"},
    ]
    examples = table(tmp_path / "a.tsv", header=False, field="1,2", label="3")
    assert examples[0] == {"1": "good film", "2": "x", "3": "1"}


@pytest.mark.parametrize(
    ("name", "content", "options", "sentence"),
    [
        ("a.tsv", "good film\t1\nbad film\t0\n", {}, r"a\.tsv, line 2 has no text column 'text' "
         r"\(it has good film, 1\); name it with --data\.field=NAME; "
         r"add --data\.header=false if the first line names no columns"),
        ("a.tsv", "text\tclass\nbad film\t0\n", {}, r"has no column 'label' \(it has text, class\); "
         r"name it with --data\.label=NAME"),
        ("a.tsv", "text\tlabel\nbad\n", {}, r"a\.tsv, line 2 has 1 columns where the first line has 2"),
        ("a.csv", 'text,label\n"bad,1\n', {}, r"a\.csv, line 2 is not a line of a table"),
        ("a.csv", "text,label\na,1\n\ufefftext,label\nb,2\n", {}, "line 3 names the columns again"),
        ("a.csv", "text,label\na,1\ntext,label\nb,2\n", {}, "line 3 names the columns again; leave that line out"),
        ("a.csv", "text,label\n", {}, r"a\.csv holds no text"),
        ("a.csv", "", {}, r"a\.csv holds no text"),
        ("a.txt", "text", {}, r"a\.txt has text alone, no columns; give a \.tsv, \.csv or \.jsonl"),
        ("a.jsonl", '{"text": "a"}', {}, r"a\.jsonl, line 1 has no column 'label' \(it has text\)"),
        ("a.jsonl", '{"text": 5, "label": 1}', {}, r"a\.jsonl, line 1 has 5 in its column 'text', which is no text; "
         r"write it in quotes, or name another column with --data\.field=NAME"),
        ("a.jsonl", "[1]", {}, r"a\.jsonl, line 1 is a list, not an object"),
    ],
)  # fmt: skip
def test_tables_that_are_not_what_they_should_be(tmp_path, name, content, options, sentence):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=sentence):
        table(tmp_path / name, **options)


# Folds


LABELLED = files.Columns(("text",), ("label",))


def folded(rows, folds):
    return [sources.fold_split(rows, LABELLED, folds, fold) for fold in range(folds)]


def test_folds_share_the_rows_and_their_labels():
    rows = [{"text": f"text {n}", "label": "abbcccc"[n % 7]} for n in range(105)]
    parts = folded(rows, 5)
    held_out = [row for _, valid in parts for row in valid]
    assert sorted(row["text"] for row in held_out) == sorted(row["text"] for row in rows), "each row once"
    for train, valid in parts:
        assert [row for row in rows if row not in valid] == train, "in the order of the file"
        assert {label: sum(row["label"] == label for row in valid) for label in "abc"} == {"a": 3, "b": 6, "c": 12}
    assert parts == folded(rows, 5), "always the same"
    assert parts[0][1] != rows[:21] != parts[0][1][::-1], "drawn, not cut"


def test_folds_that_do_not_divide():
    rows = [{"text": f"text {n}", "label": "ab"[n < 4]} for n in range(23)]
    sizes = [len(valid) for _, valid in folded(rows, 4)]
    assert (sum(sizes), max(sizes) - min(sizes)) == (23, 1)
    assert [sum(row["label"] == "b" for row in valid) for _, valid in folded(rows, 4)] == [1] * 4


def test_rows_of_equal_texts_are_in_the_same_fold():
    rows = [{"text": f"text {n % 10}", "label": n % 2} for n in range(40)]
    for train, valid in folded(rows, 5):
        assert not {row["text"] for row in train} & {row["text"] for row in valid}
        assert len(valid) == 8


def test_folds_of_a_source(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + "".join(f"text {n}\t{n % 2}\n" for n in range(10)))
    columns = files.Columns(("text",), ("label",))
    data = Data(source=str(tmp_path / "a.tsv"), folds=5, fold=3)
    train, valid = sources.load(data, columns, None)
    assert (len(train), len(valid)) == (8, 2)
    builtin_rows = [{"text": f"text {n}", "label": 0} for n in range(6)]
    train, valid = sources.load(Data(folds=2), columns, lambda: (builtin_rows, [{"text": "kept out", "label": 0}]))
    assert (len(train), len(valid)) == (3, 3), "of the built-in training rows"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"folds": 1}, "folds=1 must be at least 2, or none"),
        ({"folds": 3, "fold": 3}, "fold=3 must be less than data.folds=3, which it counts from 0"),
        ({"fold": 1}, "fold=1 must be less than data.folds=none"),
    ],
)
def test_bad_folds(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Data(**options)


def test_folds_that_cannot_be(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\none\t0\ntwo\t1\n")
    columns, path = files.Columns(("text",), ("label",)), str(tmp_path / "a.tsv")
    with pytest.raises(UserError, match=r"--data.folds=3 needs as many different rows, and there are 2; ask for fewer"):
        sources.load(Data(source=path, folds=3), columns, None)
    with pytest.raises(UserError, match=r"--data.folds=2 holds out rows of --data, and --eval-data=.* names others"):
        sources.load(Data(source=path, eval=path, folds=2), columns, None)
    assert len(sources.load(Data(source=path, eval=path, folds=2), columns, None, valid_only=True)[1]) == 2


# Line ends, and what does not end a line


ODD = "\u2029 \u2028 \u0085 \x0b \x0c \x1c"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_only_feeds_and_returns_end_a_line(tmp_path, end, last):
    """The lines to train on are those to predict for; an empty one is said, or answered."""
    path, said = tmp_path / "a.txt", []
    path.write_bytes(end.join(["one", f"two{ODD}two", "", "three", *([""] * last)]).encode())
    rows = sources.read(str(path), Data(split="line"), TEXT, of_python, said.append)
    assert [row["text"] for row in rows] == ["one", f"two{ODD}two", "three"]
    assert said == [f"1 of 4 rows of {path} have no text, and are left out"]
    assert files.read_lines(path) == ["one", f"two{ODD}two", "", "three"]
    (tmp_path / "a.csv").write_bytes(end.join(["text,label", f'"x{ODD}",a', "y,b"]).encode())
    assert [row["text"] for row in table(tmp_path / "a.csv")] == [f"x{ODD}", "y"]
    (tmp_path / "a.jsonl").write_bytes(
        end.join([json.dumps({"text": f"x{ODD}"}, ensure_ascii=False), '{"text": "y"}']).encode()
    )
    assert read(tmp_path / "a.jsonl") == [f"x{ODD}", "y"]


@pytest.mark.parametrize("name", ["train[1].txt", "train (1).txt", "what?.txt", "[ab]*.txt"])
def test_a_name_with_the_signs_of_a_glob_is_a_file(tmp_path, name):
    (tmp_path / name).write_text("here")
    (tmp_path / "train1.txt").write_text("not here")
    assert read(tmp_path / name) == ["here"]


def test_cells_of_any_length(tmp_path):
    long = "the cat sat " * 12_000
    (tmp_path / "a.csv").write_text(f'text,label\n"{long}",a\nshort,b\n')
    (tmp_path / "a.tsv").write_text(f"text\tlabel\n{long}\ta\nshort\tb\n")
    for name in ("a.csv", "a.tsv"):
        assert [row["text"] for row in table(tmp_path / name)] == [long, "short"]


def test_a_quoted_empty_cell_is_a_row(tmp_path):
    """pandas writes it so in a table of one column, and leaves a blank line out."""
    (tmp_path / "a.csv").write_text('text\na\n\n""\nb\n')
    rows = files.read(tmp_path / "a.csv", Data(source="a.csv"), files.Columns(("text",)))
    assert [row["text"] for row in rows] == ["a", "", "b"]
    (tmp_path / "b.csv").write_text('text,label\na,1\n""\n')
    rows = files.read(tmp_path / "b.csv", Data(source="b.csv"), files.Columns(("text",), ("label",)))
    assert [row["text"] for row in rows] == ["a", ""]


def test_quotes_of_a_spreadsheet_in_a_tsv_are_text_and_said(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"fine" he said, "fine"\ta\n"He said ""no"""\tb\n"""ok"""\tb\n')
    with pytest.warns(UserWarning, match="quotes in a .tsv are text") as caught:
        rows = table(path)
    assert [row["text"] for row in rows] == ['"fine" he said, "fine"', '"He said ""no"""', '"""ok"""']
    assert [str(warning.message) for warning in caught] == [
        f'{path}, line 3 has the cell "He said ""no""": quotes in a .tsv are text, so if a spreadsheet wrote them, '
        "save it as .csv"
    ]


def test_two_columns_of_one_name(tmp_path):
    (tmp_path / "a.csv").write_text("text,text,label\na,b,c\n")
    with pytest.raises(UserError, match=r"a.csv has 2 columns with the name 'text'; rename the others"):
        table(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text(",text,label,\n0,b,c,\n")
    assert table(tmp_path / "a.csv") == [{"text": "b", "label": "c"}], "columns without names may be several"


def test_rows_without_a_text_are_counted(tmp_path):
    """Rows of empty cells at the end, as spreadsheets leave them, too."""
    said = []
    (tmp_path / "a.csv").write_text("text,label\na,x\n,x\nb,y\n,\n,\n\n")
    rows = sources.read(str(tmp_path / "a.csv"), Data(), files.Columns.of(Data(), True), of_python, said.append)
    assert [row["text"] for row in rows] == ["a", "b"]
    assert said == [f"3 of 5 rows of {tmp_path / 'a.csv'} have no text, and are left out"]


def test_members_of_a_gz(tmp_path):
    members = [gzip.compress(part) for part in (b"one\n", b"", b"two\n")]
    (tmp_path / "a.txt.gz").write_bytes(b"".join(members))
    assert read(tmp_path / "a.txt.gz", split="line") == ["one", "two"]


# Holding out


def characters(texts):
    return sum(map(len, texts))


def book(name, words):
    return "".join(f"{name} {n}\n" for n in range(words))


@pytest.mark.parametrize("sizes", [(900, 900, 900, 20_000), (5000,) * 4, (5000, 5000), (20, 20_000), (300, 9000, 9000)])
@pytest.mark.parametrize("draw", range(4))
def test_a_tenth_of_the_text_is_held_out(sizes, draw):
    """Not of the files; a document that is cut is cut before a line."""
    books = [book(f"{draw}-{n}", words) for n, words in enumerate(sizes)]
    train, valid = train_valid_split(books)
    assert 0.05 <= characters(valid) / characters(books) <= 0.2
    assert characters(train) + characters(valid) == characters(books)
    for text in (*train, *valid):
        assert text.endswith("\n")
        assert text in books or sum(part.startswith(text) or part.endswith(text) for part in books) == 1
    assert train_valid_split(books) == (train, valid)


def test_equal_documents_are_cut_alike():
    books = [book("a", 4000), book("b", 4000)] * 2
    train, valid = train_valid_split(books)
    assert len(valid) == 2
    assert valid[0] == valid[1]
    assert not any(valid[0] in text for text in train)


def test_a_tenth_of_few_rows():
    """Rows with labels are never cut, and some are held out; equal texts stay together."""
    columns = files.Columns(("text",), ("label",))
    for draw in range(20):
        rows = [{"text": f"{draw} {n // 2}\nb", "label": n} for n in range(40)]
        train, valid = sources.train_valid_split(rows, columns)
        assert 2 <= len(valid) <= 8
        assert len(train) + len(valid) == 40
        assert not {row["text"] for row in train} & {row["text"] for row in valid}
