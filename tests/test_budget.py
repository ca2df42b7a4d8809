"""What may grow and what may not: these numbers are raised in a commit of their own, with the reason."""

import ast
import dataclasses
import functools
import re
import subprocess
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from variants import VARIANTS

from tfm.config.choices import alternatives, type_hints
from tfm.config.dotted import flatten
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


# What a field of `tfm.Config` is called that chooses a variant of a folder.
FIELD = {folder: folder.removesuffix("s") for folder in SLOTS}
TAGS = [(folder, tag) for folder, variants in SLOTS.items() for tag in variants]

# Tags that are also words for something else. Of these, only code counts that names the variant.
WORDS = set(
    """
    channel_groups characters compressed conditional delta fixed full global huang learned linear local none parallel
    patches post pre reversible rotary shaw sinusoidal sliding softmax strided swin t5 tokens transient windows beit
    """.split()
)

# Files that name variants of other files, beside the catalogue, presets and Hugging Face families.
EXCEPTIONS = {
    "train/lab/timing/random_task.py": ("tokens", "pre"),  # the plain model that train.bench times
    "train/lab/timing/peers/torch_mixers.py": ("linear",),  # the peer in PyTorch that a variant is timed against
    "tfm/catalogue/inputs/characters.py": ("tokens",),  # the table of types is that of tokens
}


def variants_named(tree: ast.AST) -> set[tuple[str, str]]:
    """Folders and tags of the variants that code names.

    It names one by its class of options, by its module, as the value of a field of options, and in a comparison with a
    tag. Texts of errors may name one to try.
    """
    classes = {cls.__name__: (folder, tag) for folder, tag in TAGS for cls in [SLOTS[folder][tag]]}
    folders = {field: folder for folder, field in FIELD.items()}
    named: set[tuple[str, str]] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("tfm."):
                modules = {module, *(f"{module}.{alias.name}" for alias in names)}
                parts = [name.split(".") for name in modules]
                named |= {(part[1], part[-1]) for part in parts if len(part) > 2}
                is_catalogue = module.startswith("tfm.config.")
                named |= {classes[alias.name] for alias in names if is_catalogue and alias.name in classes}
            case ast.Attribute(value=ast.Name(id="tfm"), attr=name) if name in classes:
                named.add(classes[name])
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    field = str(key.value).rpartition(".")[2] if isinstance(key, ast.Constant) else ""
                    if field in folders and isinstance(value, ast.Constant):
                        named.add((folders[field], value.value))
            case ast.Compare(left=ast.Attribute(attr="name", value=ast.Attribute(attr=field)), comparators=[*values]):
                constants = [part for value in values for part in ast.walk(value) if isinstance(part, ast.Constant)]
                named |= {(folders[field], part.value) for part in constants if field in folders}
    return named & {*TAGS}


def test_code_that_names_a_variant_is_noticed():
    code = """
from tfm.config.mixers import Softmax
import tfm.positions
from tfm.positions import alibi
from tfm.residuals.rezero import RESIDUAL
fields = {"model.mixer": "linformer", "rank": 4, "model.period.1.position": "t5"}
if config.input.name in ("patches", "merging"):
    raise ValueError("try mixer=performer")
print(tfm.Shaw())
"""
    assert {("mixers", "softmax"), ("mixers", "linformer"), ("residuals", "rezero")} <= variants_named(ast.parse(code))
    assert {tag for _, tag in variants_named(ast.parse(code))} == {
        *("softmax", "alibi", "rezero", "linformer", "t5", "patches", "merging", "shaw")
    }


def test_no_code_names_the_variant_of_another_file():
    """The catalogue, a variant's own file and those that build on it, presets and Hugging Face families name it."""
    own = rf"tfm/({'|'.join(SLOTS)})/(\w+/)*(?!__init__)\w+\.py"
    places = re.compile(rf"{own}|tfm/config/.*|tfm/hf/.*|tfm/__init__\.py|train/settings/presets/.*")
    named = {}
    for path in SOURCES:
        name = str(path.relative_to(ROOT))
        tags = {tag for _, tag in variants_named(ast.parse(path.read_text()))} - {*EXCEPTIONS.get(name, ())}
        if tags and not places.fullmatch(name):
            named[name] = tags
    assert named == {}


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exceptions_are_needed(name):
    text = (ROOT / name).read_text()
    assert all(
        re.search(rf"\b({tag}|{SLOTS[folder][tag].__name__})\b", text)
        for folder, tag in TAGS
        if tag in EXCEPTIONS[name]
    )


@functools.cache
def lower_texts() -> dict[str, str]:
    """The code of tfm and train, in lower case, by name."""
    names = [name for name in tracked() if name.startswith(("tfm/", "train/")) and name.endswith(".py")]
    return {name: (ROOT / name).read_text().lower() for name in names}


@pytest.mark.parametrize("tag", [tag for _, tag in TAGS if tag not in WORDS])
def test_cost_of_a_variant(tag):
    """In tfm and train its name occurs in the catalogue, its own file, presets and Hugging Face families."""
    allowed = rf"tfm/config/[\w/]+\.py|tfm/[\w/]+/{tag}\.py|tfm/__init__\.py|tfm/hf/.*|train/settings/presets/\w+\.py"
    word = re.compile(rf"(?<![a-z]){tag}(?![a-z])")
    mentions = [name for name, text in lower_texts().items() if word.search(text)]
    assert [name for name in mentions if not re.fullmatch(allowed, name)] == []


def test_every_variant_has_a_row():
    configs = [stage for row in VARIANTS.values() for stage in row.config.stage_configs]
    chosen = {(name.rpartition(".")[2], value) for config in configs for name, value in flatten(config).items()}
    assert [tag for folder, tag in TAGS if (FIELD[folder], tag) not in chosen] == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tfm").glob("layers/*.py")) + sorted((ROOT / "tfm").glob("models/*.py"))
)
def test_the_forward_path_names_no_variant(path):
    """No class of options, no tag and no module of a variant stands in a file of layers/ or models/."""
    tree = ast.parse(path.read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    }
    without_remedies = [re.sub(r"; try .*", "", text) for text in texts]
    for folder, variants in SLOTS.items():
        for tag, cls in variants.items():
            assert cls.__name__ not in names
            assert tag not in texts - {"none"}
            assert not any(re.search(rf"\b{FIELD[folder]}={tag}\b", text) for text in without_remedies)
    assert variants_named(tree) == set()
