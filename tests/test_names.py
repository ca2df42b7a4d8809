"""Names say what they hold: words that hold anything are not identifiers here."""

import ast
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(path for folder in ("tfm", "train", "tests") for path in (ROOT / folder).rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

BANNED = frozenset(
    """alike anew beside each farewell found gathered given here judge known least made most number one other others
    another ours room scattered settle spread theirs there thing told two way what whole""".split()
)

# Arguments of functions that others define: transformers' and jax's own words.
FOREIGN: dict[str, set[str]] = {}


def identifiers(tree: ast.AST) -> set[str]:
    """Variables, arguments, attributes that are set, functions, classes and aliases of imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.alias(asname=str(name)):
                names.add(name)
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_identifiers_of_files(path):
    allowed = FOREIGN.get(str(path.relative_to(ROOT)), set())
    assert identifiers(ast.parse(path.read_text())) & BANNED <= allowed


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_identifiers_of_notebooks(path):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    lines = [line for cell in cells for line in "".join(cell["source"]).splitlines()]
    code = "\n".join(line for line in lines if not line.lstrip().startswith(("!", "%")))
    assert not identifiers(ast.parse(code)) & BANNED


def test_a_banned_word_is_noticed():
    tree = ast.parse("def f(given):\n    found = given\n    self.way = [each for each in found]\nimport numpy as one")
    assert identifiers(tree) & BANNED == {"given", "found", "way", "each", "one"}
