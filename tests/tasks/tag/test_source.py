"""Sentences of tagged words, from files of every format."""

import gzip
import json
import warnings

import pytest

from train import UserError
from train.data.sources import files, sources
from train.settings.schema import Data
from train.tasks.tag import source
from train.tasks.tag.rows import classes_of, describe_tags, encode_tags

TAGGED = source.TaggedWords("tokens", "tags")
WORDS = source.TaggedWords("tokens")
CONLL = """-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
"""


def read(path, text, reader=TAGGED, data=None):
    path.write_text(text)
    return files.read(path, data or Data(), reader)


def pairs(rows):
    return [list(zip(row["tokens"], row["tags"], strict=True)) for row in rows]


def test_columns_of_conll_2003(tmp_path):
    """The word is first and the tag last; other columns by their position."""
    rows = read(tmp_path / "a.conll", CONLL)
    assert pairs(rows) == [
        [("EU", "I-ORG"), ("rejects", "O"), ("German", "I-MISC")],
        [("Peter", "I-PER"), ("Blackburn", "I-PER")],
    ]
    rows = read(tmp_path / "a.conll", CONLL, source.TaggedWords("1", "2"))
    assert rows[0]["tags"] == ["NNP", "VBZ", "JJ"]
    assert source.place_of(rows[1], 1) == f"{tmp_path / 'a.conll'}, line 8"


@pytest.mark.parametrize("text", ["a\tO\n#b\tB-X\n\nc d\tO\n", "\n\na\tO\r\n#b\tB-X\r\n \t\r\nc d\tO"])
def test_columns_between_tabs(text, tmp_path):
    """Words may hold spaces and begin with #; blank lines may hold spaces and tabs."""
    assert pairs(read(tmp_path / "a.tsv", text)) == [[("a", "O"), ("#b", "B-X")], [("c d", "O")]]


def test_words_are_not_split_at_foreign_line_breaks(tmp_path):
    text = "a\u2028b\tO\n\x85\tO\n\xa0\tO\n"
    assert read(tmp_path / "a.tsv", text)[0]["tokens"] == ["a\u2028b", "\x85", "\xa0"]


def test_a_line_that_names_the_columns(tmp_path):
    text = "n\ttokens\ttags\n1\ta\tX\n\n2\tb\tY\n"
    assert pairs(read(tmp_path / "a.tsv", text)) == [[("a", "X")], [("b", "Y")]]
    text = text.replace("tokens", "form").replace("tags", "upos")
    assert pairs(read(tmp_path / "a.tsv", text, source.TaggedWords("form", "upos"))) == [[("a", "X")], [("b", "Y")]]


def test_gz_and_json(tmp_path):
    with gzip.open(tmp_path / "a.conll.gz", "wt") as file:
        file.write(CONLL)
    assert len(files.read(tmp_path / "a.conll.gz", Data(), TAGGED)) == 2
    lines = [{"tokens": ["a", "b"], "tags": ["O", "B-X"]}, {"tokens": [], "tags": []}, {"tokens": ["c"], "tags": [3]}]
    rows = read(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)))
    assert pairs(rows) == [[("a", "O"), ("b", "B-X")], [], [("c", "3")]]
    assert len(sources.read(str(tmp_path / "a.jsonl"), Data(), TAGGED, lambda: ([], []))) == 2, (
        "an empty one has no word"
    )


def test_words_of_blanks_are_words(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"tokens": ["", " "], "tags": ["O", "O"]}')
    assert len(sources.read(str(tmp_path / "a.jsonl"), Data(), TAGGED, lambda: ([], []))) == 1


# Two sentences as Universal Dependencies have them: comments, a range of words, an empty node.
UD = """# newdoc
# text = Ada didn't run
1\tAda\tAda\tPROPN\t_\t_\t2\tnsubj\t_\t_
2-3\tdidn't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdid\tdo\tAUX\t_\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\t_\t_\t2\tneg\t_\t_
3.1\trun\trun\tVERB\t_\t_\t_\t_\t_\t_

# text = #
1\t#\t#\tSYM\t_\t_\t0\troot\t_\t_
"""


@pytest.mark.parametrize("name", ["a.conllu", "a.conll"])
@pytest.mark.parametrize("reader", [TAGGED, source.TaggedWords("2", "4")])
def test_universal_dependencies(tmp_path, name, reader):
    rows = read(tmp_path / name, UD, reader)
    assert pairs(rows) == [[("Ada", "PROPN"), ("did", "AUX"), ("n't", "PART")], [("#", "SYM")]]
    words = read(tmp_path / name, UD, WORDS)
    assert words[0]["before"] == ["# newdoc", "# text = Ada didn't run"], "they come back with predictions"


@pytest.mark.parametrize(
    "text",
    [
        "# sent_id = 1\nAda\tB-PER\nran\tO\n\n#\tO\n#1\tO\n",
        "Ada\tB-PER\nran\tO \n\n# text = x\n# y\n#\tO \n#1\tO\n",
        "Ada B-PER\nran O\n\n# text = x\n# O\n#1 O\n",
        "Ada\tB-PER\rran\tO\r\r#\tO\r#1\tO",
    ],
)
def test_comments_and_spaces_behind_tags(tmp_path, text):
    """A line before a sentence that begins with # and has not its columns; in a sentence it is a word."""
    (tmp_path / "a.conll").write_bytes(text.encode())
    rows = files.read(tmp_path / "a.conll", Data(), TAGGED)
    assert pairs(rows) == [[("Ada", "B-PER"), ("ran", "O")], [("#", "O"), ("#1", "O")]]


def test_numbers_are_one_tag(tmp_path):
    rows = read(tmp_path / "a.jsonl", '{"tokens": ["a", "b", "c"], "tags": [1, 0.0, "1"]}')
    assert rows[0]["tags"] == ["1", "0", "1"]


def test_rows_without_tags(tmp_path):
    """For predictions: words of a CoNLL file with its lines, words or texts of JSON."""
    rows = read(tmp_path / "a.conll", CONLL + "-DOCSTART- -X- -X- O\n\nx y z O\n", WORDS)
    assert [row["tokens"] for row in rows] == [["EU", "rejects", "German"], ["Peter", "Blackburn"], ["x"]]
    assert [row["before"] for row in rows] == [["-DOCSTART- -X- -X- O"], [], ["-DOCSTART- -X- -X- O"]]
    assert rows[1]["lines"] == CONLL.splitlines()[6:]
    assert [row["tokens"] for row in read(tmp_path / "a.conll", "a\nb\n\nc\n", WORDS)] == [["a", "b"], ["c"]]
    lines = '{"tokens": ["a"]}\n{"text": "b c"}\n{"tokens": "d e"}\n'
    rows = read(tmp_path / "a.jsonl", lines, WORDS)
    assert [row.get("tokens") or row["text"] for row in rows] == [["a"], "b c", "d e"]


@pytest.mark.parametrize(
    ("name", "text", "reader", "sentence"),
    [
        ("a.conll", "a O\nb\n", TAGGED, "line 2 has 1 columns where the first line has 2; repair it, or put a blank"),
        ("a.conll", "a x O\n\nb O\n", TAGGED, "line 3 has 2 columns where the first line has 3"),
        ("a.conll", "a\n", TAGGED, "line 1 has 1 column; a line must have a word and its tag"),
        ("a.tsv", "a\tO\n\tO\n", TAGGED, "line 2 has a tag without a word; repair it"),
        ("a.tsv", "a\tO\nb\t\n", TAGGED, "line 2 has the word 'b' without a tag; give it one"),
        (
            "a.conll",
            "a O\n",
            source.TaggedWords("5", "tags"),
            "has no column '5'; its first line has 2 columns, which --data.field numbers from 1",
        ),
        ("a.tsv", "a\tO\n", source.TaggedWords("tokens", "pos"), "has no column 'pos'; its first line has 2 columns"),
        ("a.jsonl", '{"tokens": ["a"], "tags": []}', TAGGED, "line 1 has 1 words and 0 tags; give every word its tag"),
        ("a.jsonl", '{"tokens": ["a"], "tags": [null]}', TAGGED, "line 1 has the word 'a' without a tag; give it one"),
        ("a.jsonl", '{"tokens": "a b", "tags": []}', TAGGED, "line 1 has a str in its column 'tokens' (it has tokens"),
        ("a.jsonl", '{"words": ["a"], "tags": ["O"]}', TAGGED, "name another with --data.field=NAME"),
        ("a.jsonl", '{"tokens": ["a"]}', TAGGED, "line 1 has no list in its column 'tags'"),
        ("a.jsonl", '{"tokens": [1], "tags": ["O"]}', TAGGED, "line 1 has a word that is no text in its column"),
        ("a.jsonl", '{"x": 1}', WORDS, "line 1 has no list in its column 'tokens' (it has x)"),
        ("a.txt", "a", TAGGED, "a.txt is not a .conll, .conllu, .tsv, .jsonl file, nor one of these with .gz"),
    ],
)
def test_bad_files(name, text, reader, sentence, tmp_path):
    with pytest.raises(UserError) as error:
        read(tmp_path / name, text, reader)
    assert sentence in str(error.value)
    assert str(tmp_path / name) in str(error.value)


def test_an_empty_file(tmp_path):
    (tmp_path / "a.conll").write_text("\n\n")
    with pytest.raises(UserError, match=r"a\.conll holds no text; check the file, or choose another"):
        sources.read(str(tmp_path / "a.conll"), Data(), TAGGED, lambda: ([], []))


def test_classes():
    """O first, then types by letter; a tag that is none of them is named with its line."""
    rows = [{"tokens": ["a"] * 5, "tags": ["I-PER", "O", "B-PER", "B-LOC", "I-LOC"], "where": "f", "line": 3}]
    classes = classes_of(rows)
    assert classes == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert encode_tags(rows, classes)[0].tolist() == [4, 0, 3, 1, 2]
    bad = {"tokens": ["a", "b"], "tags": ["O", "B-X"], "where": "f"}
    with pytest.raises(UserError, match="f, line 4 has the tag 'B-X', which never occurs in the training data"):
        encode_tags([{**bad, "line": 3}], classes)
    with pytest.raises(UserError, match="f, word 2, has the tag 'B-X', which never"):
        encode_tags([bad], classes)
    with pytest.raises(UserError, match="every word is tagged 'O'; there must be two labels or more"):
        classes_of([{"tags": ["O"]}])


def test_a_first_line_that_may_name_the_columns_is_said(tmp_path):
    rows = read(tmp_path / "a.conll", "token\ttag\n" + "Ada\tB-PER\nran\tO\n")
    with pytest.warns(UserWarning, match=r"line 1 has .*'tag'; .* say --data.field=token --data.label=tag"):
        assert classes_of(rows) == ["O", "tag", "B-PER"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classes_of(read(tmp_path / "a.conll", "Ada\tB-PER\nran\tO\n"))
        named = Data(field="token", label="tag")
        reader = source.TaggedWords("token", "tag")
        assert classes_of(read(tmp_path / "a.conll", "token\ttag\nAda\tB-PER\nran\tO\n", reader, named)) == [
            "O",
            "B-PER",
        ]


def test_what_the_log_says_of_tags():
    assert describe_tags([["B-PER", "I-PER", "O"]]) == "tags: IOB2, entities of 1 types: PER"
    assert "1 entities begin with I-, and are read as if B- stood there" in describe_tags([["B-A", "O", "I-A"]])
    assert describe_tags([["I-A", "B-A"]]) == "tags: IOB1, entities of 1 types: A"
    assert describe_tags([["DT", "NN"]]).startswith("tags: 2 labels that mark no entities")
