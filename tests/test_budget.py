"""The size of the code base is a decision: these numbers are raised in a commit of their own, with the reason."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted([*ROOT.glob("tfm/**/*.py"), *ROOT.glob("train/**/*.py")])

FILES = 120
LINES_OF_A_FILE = 300
LINES_OF_A_FUNCTION = 50
PARAMETERS = 7
LINES_OF_TFM = 6650
LINES_OF_TRAIN = 9850
FIELDS = 117
DEPENDENCIES = 14
FOREIGN = {"__call__", "encode", "decode", "generate"}  # signatures of others that tfm.compat repeats
TOP_LEVEL = {
    "pyproject.toml",
    "README.md",
    "LICENSE",
    ".ci",
    ".gitignore",
    "docs",
    "tfm",
    "train",
    "notebooks",
    "tests",
}


def functions(path: Path):
    """Every function of a file."""
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]


def lines(paths) -> int:
    """Lines of some files together."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def test_number_of_files():
    assert len(SOURCES) <= FILES


@pytest.mark.parametrize("package", ["tfm", "train"])
def test_lines_of_packages(package):
    limit = {"tfm": LINES_OF_TFM, "train": LINES_OF_TRAIN}[package]
    assert lines(path for path in SOURCES if path.relative_to(ROOT).parts[0] == package) <= limit


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file(path):
    assert lines([path]) <= LINES_OF_A_FILE
    for function in functions(path):
        foreign = path.parent.name == "compat" and function.name in FOREIGN
        arguments = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        assert len([name for name in arguments if name != "self"]) <= PARAMETERS or foreign, (
            f"{function.name} has too many parameters"
        )
        assert function.end_lineno - function.lineno + 1 <= LINES_OF_A_FUNCTION, f"{function.name} is too long"


def test_flags():
    from train.settings.resolve import FLAGS

    assert max(map(len, FLAGS.values())) <= FIELDS


def test_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= DEPENDENCIES


def test_top_level():
    import subprocess

    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    assert {name.split("/")[0] for name in tracked} <= TOP_LEVEL
