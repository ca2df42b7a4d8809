"""JSON and text from outside: what is read is what `json` reads, and what is refused says where."""

import itertools
import json

import pytest

from tfm.options.json_text import MAX_DEPTH, check_text, decode_text, parse, parse_object, read_object, read_text


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        -2.5,
        "é\u2028😀",
        {},
        [],
        {"a": [1, {"b": None}]},
        [[n] for n in range(200)],
        {str(n): [n] for n in range(99)},
    ],
)
def test_values_are_those_of_json(value):
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert parse(text, "x") == json.loads(text) == value


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "x is not JSON: Expecting property name"),
        ("", "x is not JSON"),
        ('{"b": [{"a": 1, "a": 2}]}', "x is not JSON: an object has 'a' twice, with two values; remove one"),
        ("NaN", "x is not JSON: NaN is not a finite number"),
        ('{"a": [-Infinity]}', "x is not JSON: -Infinity is not a finite number"),
        ("1e999", "x is not JSON: 1e999 is not a finite number"),
        ("9" * 5000, "x is not JSON: Exceeds the limit"),
        ("[" * 100_000, "x has lists and objects in one another, more than 64 deep"),
        ("[" * 100_000 + "]" * 100_000, "x has lists and objects in one another, more than 64 deep"),
        ('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), "more than 64 deep"),
        ('{"a": "\\ud800"}', "x is not Unicode text"),
        ('["\\uDfff"]', "x is not Unicode text"),
        ('{"\\udc00": 1}', "x is not Unicode text"),
        ('[["a\\u0000"]]', "x has a NUL character"),
    ],
)
def test_what_is_refused(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse(text, "x")


def test_depth_up_to_the_limit():
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse(text, "x") == json.loads(text)


def test_a_pair_of_surrogates_is_a_character():
    assert parse('["\\ud83d\\ude00"]', "x") == ["😀"]


@pytest.mark.parametrize("text", ["[]", "null", "7", '"a"', "true"])
def test_an_object_is_meant(text):
    with pytest.raises(ValueError, match="x is .*, not a JSON object"):
        parse_object(text, "x")


def test_bytes_of_text():
    assert decode_text(b"\xef\xbb\xbfa\r\n\xc3\xa9", "x") == "a\r\né"
    with pytest.raises(ValueError, match=r"x is not UTF-8 \(byte 2\)"):
        decode_text(b"a\n\xff", "x")
    for bits, order in itertools.product((16, 32), ("le", "be")):
        with pytest.raises(ValueError, match=f"x is UTF-{bits}.*iconv -f UTF-{bits} -t UTF-8"):
            decode_text("\ufeffa".encode(f"utf-{bits}-{order}"), "x")
    with pytest.raises(ValueError, match="x is a binary file: line 200001 has a NUL byte"):
        decode_text(b"a\n" * 200_000 + b"\0", "x")
    check_text("x", "é😀")
    for text in ("a\0", "a\udcff"):
        with pytest.raises(ValueError, match="^x "):
            check_text("x", text)


def test_files(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}')
    assert read_object(path) == {"a": 1}
    with pytest.raises(ValueError, match="a.json has more than 0 MB"):
        read_text(path, max_bytes=7)
