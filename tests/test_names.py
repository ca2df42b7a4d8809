"""Names say what they hold: words that hold anything, and private words for what the field has a name for, name no
identifier and no file here."""

import ast
import json
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import CodeType

import pytest

import tfm

ROOT = Path(__file__).parent.parent
FILES = sorted(path for folder in ("tfm", "train", "tests") for path in (ROOT / folder).rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# They hold anything, or are private words for what the field calls otherwise.
BANNED = frozenset(
    """
    alike anew another apart around beside each farewell found gathered given here how judge known least made most
    never number one other others ours room scattered settle since spread theirs there thing told two way what whole

    Cached Dense Distances Ended Everywhere FORBIDDEN GOALS Kept Knob Meeting NEXT Near Recorded Rules Stretches Theirs
    _alone _called_off _judged _overlooked adapt amount any_of bucketed decided embed_map explore far first_norm gather
    global_every held lm_states mlm_states near nearby output_scale place_key place_query placed read_source recalling
    remember rotary_share say shortage slide states_at stretch tied turned vocab_multiple whole_length with_task
    """.split()
)

# Private words for something in one folder or file, which mean what they say elsewhere.
BANNED_IN = {
    "tfm": "along at named quiet Bias Buckets Parts since turns",
    "tfm/attention": "choose compare mix",
    "tfm/config/model.py": "buckets order relative shared",
    "tfm/decoding": "Progress cut new repeated",
    "tfm/decoding/cache.py": "before seen",
    "tfm/decoding/constraints.py": "first last",
    "tfm/hf": "fit free only same skip",
    "tfm/layers": "mix",
    "tfm/masks": "parts",
    "tfm/models": "before placed reader tag",
    "tfm/positions": "long short",
    "tfm/sharding.py": "places",
    "train/data/feed.py": "order put share",
    "train/devices": "first join local own",
    "train/settings": "divide explain",
    "train/tasks/__init__.py": "fields show",
    "train/training": "empty note",
}

# They say nothing of what a file is for.
BANNED_FILES = BANNED | frozenset(
    """base best cores foreign guard handover helpers kinds manager misc output processes quiet rounding run spm
    utils window""".split()
)

# `tfm.weight` would not say that it makes a spec.
BANNED_OF_TFM = BANNED | frozenset("Bias Buckets Parts at bias choose count parts places scale since weight".split())

# Arguments of functions that others define: transformers' and jax's own words.
FOREIGN: dict[str, set[str]] = {}


def identifiers(tree: ast.AST) -> set[str]:
    """What code names: variables, arguments, keywords of calls, attributes that are set, functions, classes, aliases of
    imports, caught exceptions and captures of patterns."""
    names: set[str | None] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.arg(arg=name) | ast.keyword(arg=name) | ast.alias(asname=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
                names.add(name)
            case ast.MatchMapping(rest=name):
                names.add(name)
    return {name for name in names if name}


def mentions(code: CodeType) -> set[str]:
    """The names in compiled code, bound or read, and the constants that may be names: of keywords and of fields."""
    names = {*code.co_names, *code.co_varnames, *code.co_cellvars}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= {constant.co_name} | mentions(constant)
        names.update(
            name for name in (constant if isinstance(constant, tuple) else [constant]) if isinstance(name, str)
        )
    return names


def banned_of(source: str, words: AbstractSet[str]) -> set[str]:
    """The identifiers of code among some words. Compiling takes a third of the time of reading the syntax tree."""
    if mentions(compile(source, "", "exec")).isdisjoint(words):
        return set()
    return identifiers(ast.parse(source)) & words


def banned_in(path: str) -> set[str]:
    """The words banned in a file of the project: everywhere, in one of its folders, or in itself."""
    return BANNED.union(*(words.split() for place, words in BANNED_IN.items() if f"{path}/".startswith(f"{place}/")))


@pytest.mark.slow
def test_identifiers_of_files():
    banned = {}
    for path in FILES:
        name = str(path.relative_to(ROOT))
        banned[name] = banned_of(path.read_text(), banned_in(name) - FOREIGN.get(name, set()))
    assert {name: words for name, words in banned.items() if words} == {}


def test_names_of_files_and_folders():
    paths = [path.relative_to(ROOT).with_suffix("") for path in FILES]
    assert [path for path in paths if BANNED_FILES.intersection(path.parts)] == []


def test_public_names():
    assert BANNED_OF_TFM.isdisjoint(tfm.__all__)


def test_places_with_words_of_their_own_exist():
    assert [place for place in BANNED_IN if not (ROOT / place).exists()] == []


def code_of(notebook: Path) -> str:
    """The code of the cells of a notebook, without commands of the shell."""
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    lines = [line for cell in cells for line in "".join(cell["source"]).splitlines()]
    return "\n".join(line for line in lines if not line.lstrip().startswith(("!", "%")))


def test_identifiers_of_notebooks():
    banned = {path.name: banned_of(code_of(path), BANNED) for path in NOTEBOOKS}
    assert {name: words for name, words in banned.items() if words} == {}


def test_a_banned_word_is_noticed():
    source = "def f(given):\n    found = given\n    self.way = [each for each in found]\nimport numpy as one"
    assert banned_of(source, BANNED) == {"given", "found", "way", "each", "one"}
    source = "try:\n    f(way=1)\nexcept E as found:\n    match x:\n        case [1, *each]: 0\n        case {**one}: 0"
    assert banned_of(source, BANNED) == {"way", "found", "each", "one"}
    for source in (
        "class A:\n    other: int",
        "def other():\n    def f(): pass",
        "f(1, other=2)",
        "class A(other=2): pass",
        "lambda *other: 0",
        "[0 for other in x]",
        "import other as x\nfrom x import y as other",
        "match x:\n    case other: 0",
        "def f():\n    other = 1\n    return lambda: other",
    ):
        assert banned_of(source, BANNED) == {"other"}


def test_a_word_banned_in_a_folder_is_banned_in_its_files():
    assert "compare" in banned_in("tfm/attention/kernels/choice.py")
    assert "compare" not in banned_in("tfm/attentions.py") | banned_in("train/lab/compare/table_rows.py")
