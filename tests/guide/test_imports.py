"""What README, the pages of docs/ and the notebooks import from the project is there."""

import ast
import importlib
import json
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = {"mteb"}  # packages that examples need, and these tests do not
BLOCK = re.compile(r"^([ ]*)```[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def sources(path):
    """The pieces of code in a page or a notebook."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return [textwrap.dedent(block) for _, block in BLOCK.findall(text)]


def imports(source):
    """(module, names) of the imports of tfm and train in a piece of code; none where it is no Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or "", [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)


def written(path, module):
    """Whether a page has its reader write a module."""
    return f"`{module.replace('.', '/')}.py`" in path.read_text()


PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("notebooks/*.ipynb"))]
USED = {path: [used for code in sources(path) for used in imports(code)] for path in PAGES}


@pytest.mark.parametrize("path", [path for path in PAGES if USED[path]], ids=lambda path: path.name)
def test_imports(path):
    for module, names in USED[path]:
        if module.split(".")[0] in ("tfm", "train") and not written(path, module):
            try:
                imported = importlib.import_module(module)
            except ModuleNotFoundError as error:
                if error.name in EXTRAS:
                    continue
                raise
            for name in names:
                if not hasattr(imported, name) and not written(path, f"{module}.{name}"):
                    importlib.import_module(f"{module}.{name}")


def test_an_import_is_noticed():
    code = "import tfm.ops\nfrom train.data import (\n    pairs,\n    fields,\n)\n"
    assert list(imports(code)) == [("tfm.ops", []), ("train.data", ["pairs", "fields"])]
    assert not list(imports("$ ls"))
