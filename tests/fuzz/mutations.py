"""Files and flags with faults: hypothesis strategies that start from what is right."""

import copy
import gzip
import json

from hypothesis import strategies as st

# Values that fields do not expect: other types, the ends of ranges, and what only looks like a number.
NASTY = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        3,
        7,
        600.5,
        -0.5,
        0.0,
        1e-30,
        1e300,
        10**9,
        10**18,
        10**30,
        2**31,
        2**63,
        -(2**70),
    ),
    *("", " ", "x", "64", "1e-12", "nan", "Infinity", "none", "\0", "\ud800", "é\n", "a" * 5000, "../..", "/", "'{}'"),
    *([], {}, [1], ["x"], [[["x"]]], [None], {"a": 1}, {"0": "x"}, {"name": "x"}, {"": None}),
)
VALUES = st.sampled_from(NASTY).map(copy.deepcopy) | st.integers() | st.floats() | st.text(max_size=20)

# Texts that take the place of a part of a file.
FRAGMENTS = (
    *(
        b"",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\t",
        b",",
        b'"',
        b"{",
        b"]",
        b"[" * 200,
    ),
    *(b"NaN", b"-Infinity", b"1e999", b"null", b"\\ud800", b"\\u0000", b"nan", b"7", b"-1", b'{"a": 1}', b"9" * 400),
    "\u2028\u0085\u200b".encode(),
    b"[" * 100_000,
)


def places(tree, path=()):
    """The path of every value in a JSON value."""
    yield path
    members = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, member in members:
        yield from places(member, (*path, key))


@st.composite
def edited(draw, tree, changes=3):
    """A JSON value with a few of its members replaced, removed or added."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, changes))):
        *path, key = draw(st.sampled_from([path for path in places(tree) if path] or [("x",)]))
        parent = tree
        for step in path:
            parent = parent[step]
        kind = draw(st.sampled_from(("replace", "replace", "replace", "remove", "add")))
        if kind == "replace":
            parent[key] = draw(VALUES)
        elif kind == "remove" and key in (parent if isinstance(parent, dict) else range(len(parent))):
            del parent[key]
        elif isinstance(parent, dict):
            parent[draw(st.text(max_size=8))] = draw(VALUES)
    return draw(st.sampled_from((tree, tree, tree, tree, tree, tree, tree, draw(VALUES))))


@st.composite
def damaged(draw, data: bytes, changes=3):
    """Bytes with a few places changed, cut out or written twice."""
    for _ in range(draw(st.integers(1, changes))):
        start = draw(st.integers(0, len(data)))
        stop = min(len(data), start + draw(st.sampled_from((0, 0, 1, 1, 5, 100))))
        fragment = draw(st.sampled_from(FRAGMENTS) | st.binary(max_size=8) | st.just(data[start:stop] * 2))
        data = data[:start] + fragment + data[stop:]
    return data


def json_files(tree):
    """The bytes of a JSON file, of which values or bytes are wrong."""
    text = json.dumps(tree).encode()
    # Python writes nan and surrogates, as careless programs do.
    return edited(tree).map(lambda value: json.dumps(value).encode()) | damaged(text)


def packed(data: bytes):
    """A .gz file that is whole or damaged."""
    return st.just(gzip.compress(data, mtime=0)) | damaged(gzip.compress(data, mtime=0))


def flags(names):
    """A few flags with texts."""
    texts = VALUES.map(str) | st.sampled_from(
        ("true", "none", "1_000", "1e3", "0x10", "+5", "\uff11\uff12", "\udcff", "--x", "=")
    )
    pair = st.tuples(st.sampled_from(sorted(names)), st.none() | texts)
    return st.lists(pair.map(lambda flag: f"--{flag[0]}" + ("" if flag[1] is None else f"={flag[1]}")), max_size=4)
