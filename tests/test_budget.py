"""What may grow and what may not: these numbers are raised in a commit of their own, with the reason."""

import ast
import dataclasses
import re
import subprocess
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from variants import VARIANTS

import tfm
from tfm.config.choices import alternatives, type_hints
from tfm.config.mixers import Softmax
from tfm.config.model import Config
from tfm.variants import load

ROOT = Path(__file__).parent.parent
SOURCES = sorted([*ROOT.glob("tfm/**/*.py"), *ROOT.glob("train/**/*.py")])

FILES_OF_A_FOLDER = 17
LINES_OF_A_FILE = 300
LINES_OF_A_FUNCTION = 40  # without its docstring
PARAMETERS = 7
FIELDS = 35  # of tfm.Config itself
DEPENDENCIES = 15
FOREIGN = {"__call__", "encode", "decode", "generate"}  # signatures of transformers that tfm.compat repeats
TOP_LEVEL = set("pyproject.toml README.md LICENSE .ci .gitignore docs tfm train notebooks tests".split())

# What a union of options is called in `tfm.Config`, and the folder of its variants.
SLOTS = {
    "mixers": alternatives(type_hints(Config)["mixer"]),
    "positions": alternatives(type_hints(Config)["position"]),
    "residuals": alternatives(type_hints(Config)["residual"]),
    "inputs": alternatives(type_hints(Config)["input"]),
    "patterns": alternatives(type_hints(Softmax)["pattern"]),
}


def tracked() -> list[str]:
    """Every file of the project."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return listing.splitlines()


def code_lines(function: ast.FunctionDef) -> int:
    """Lines of a function without its docstring."""
    first = function.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = first.end_lineno - first.lineno + 1 if has_docstring else 0
    return function.end_lineno - function.lineno + 1 - docstring


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file(path):
    assert len(path.read_text().splitlines()) <= LINES_OF_A_FILE
    for function in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)):
        is_foreign = path.parent.name == "compat" and function.name in FOREIGN
        arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        names = [argument.arg for argument in arguments if argument.arg != "self"]
        assert len(names) <= PARAMETERS or is_foreign, f"{function.name} has too many parameters"
        assert code_lines(function) <= LINES_OF_A_FUNCTION, f"{function.name} is too long"


def test_files_of_folders():
    folders: dict[str, int] = {}
    for name in tracked():
        if name.startswith(("tfm/", "train/", "tests/")) and name.endswith(".py"):
            folder = name.rpartition("/")[0]
            folders[folder] = folders.get(folder, 0) + 1
    assert {folder: count for folder, count in folders.items() if count > FILES_OF_A_FOLDER} == {}


def imported_modules(path, modules):
    """The modules of the project that a file imports anywhere, in functions and for types too; `tfm` imports lazily."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules else node.module for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)


def imports() -> dict[str, set[str]]:
    """The modules that each module of the project imports, as dotted names."""
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in SOURCES]
    modules = dict(zip(names, SOURCES, strict=True))
    return {name: {*imported_modules(path, modules)} - {"tfm"} for name, path in modules.items()}


def test_no_files_import_each_other_in_a_circle():
    graph = imports()
    assert len([*TopologicalSorter(graph).static_order()]) == len(graph)  # raises CycleError


def test_no_folders_import_each_other_in_a_circle():
    """Arrows lead down; a folder and the folders in it are one room."""

    def folder(name):
        return name if (ROOT / name.replace(".", "/")).is_dir() else name.rpartition(".")[0]

    graph: dict[str, set[str]] = {}
    for name, imported in imports().items():
        folders = {folder(module) for module in imported}
        graph.setdefault(folder(name), set()).update(target for target in folders if not _nested(target, folder(name)))
    assert len([*TopologicalSorter(graph).static_order()]) >= len(graph)  # raises CycleError


def _nested(first: str, second: str) -> bool:
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")


def test_fields_of_the_configuration():
    assert len(dataclasses.fields(Config)) <= FIELDS


def test_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= DEPENDENCIES


def test_top_level():
    assert {name.split("/")[0] for name in tracked()} <= TOP_LEVEL


@pytest.mark.parametrize("folder", SLOTS)
def test_a_variant_is_a_file_named_like_its_tag(folder):
    paths = {tag: load(options()).__file__ for tag, options in SLOTS[folder].items()}
    assert all(Path(path).stem == tag for tag, path in paths.items())
    files = {str(path) for path in (ROOT / "tfm" / folder).rglob("*.py") if path.stem != "__init__"}
    assert files == set(paths.values())


@pytest.mark.parametrize("tag", ["linformer", "performer", "nystrom", "rezero"])
def test_cost_of_a_variant(tag):
    """Its name occurs in the catalogue, its own file, row, tests, docs, notebooks, presets and Hugging Face family."""
    own = rf"tfm/config/[\w/]+\.py|tfm/[\w/]+/{tag}\.py|tests/variants\.py|tests/oracles/.*|tests/\w+/test_{tag}\.py"
    shared = r"tests/mixers/.*|tests/test_budget\.py|docs/.*|README\.md|notebooks/.*|train/settings/presets/\w+\.py"
    family = rf"tfm/hf/families/\w+/{tag}\w*\.py|tfm/hf/__init__\.py|tests/hf/.*|tests/hf_models\.py"
    allowed = re.compile(rf"{own}|{shared}|{family}")
    files = [name for name in tracked() if name.endswith((".py", ".md", ".toml", ".ipynb")) or name == ".ci/run"]
    mentions = [name for name in files if tag in (ROOT / name).read_text().lower()]
    assert [name for name in mentions if not allowed.fullmatch(name)] == []
    assert any(tag in row.values.values() for row in VARIANTS.values())


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tfm").glob("layers/*.py")) + sorted((ROOT / "tfm").glob("models/*.py"))
)
def test_the_forward_path_names_no_variant(path):
    """No class of options, no tag and no module of a variant stands in a file of layers/ or models/."""
    tree = ast.parse(path.read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    }
    for folder, variants in SLOTS.items():
        if folder == "inputs":
            continue
        for tag, cls in variants.items():
            assert cls.__name__ not in names
            assert f"tfm.{folder}.{tag}" not in modules
            assert tag not in texts - {"none"}
    assert issubclass(tfm.Config, object)
