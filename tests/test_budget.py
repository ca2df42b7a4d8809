"""What may grow and what may not: these numbers are raised in a commit of their own, with the reason.

Each pushes towards code that one person can read: short files and functions, arrows that lead down, a core that knows
no variant, one meaning for a name. `test_hooks.py` and `test_traced.py` are about the core alone.
"""

import ast
import dataclasses
import functools
import gc
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Container
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TypeVar

import pytest
from variants import VARIANTS

from tfm.config.mixers import Softmax
from tfm.config.model import Config
from tfm.options.choices import alternatives, type_hints
from tfm.options.dotted import flatten
from tfm.tables.feed_forwards import FEED_FORWARDS
from tfm.tables.inputs import INPUTS
from tfm.tables.mixers import MIXERS
from tfm.tables.patterns import PATTERNS
from tfm.tables.positions import POSITIONS
from tfm.tables.residuals import RESIDUALS

ROOT = Path(__file__).parent.parent
Node = TypeVar("Node", bound=ast.AST)
SOURCES = sorted([*ROOT.glob("tfm/**/*.py"), *ROOT.glob("train/**/*.py")])

LINES_OF_A_FILE = 300
LINES_OF_A_FUNCTION = 40  # without its docstring
PARAMETERS = 7
PARAMETERS_OF_ARRAYS = 9  # queries, keys, values, mask and bias are five already
FIELDS = 37  # of tfm.Config itself
DEPENDENCIES = 15
LINES_OF_A_COMMAND = 20  # train/NAME.py of a tool of train/lab
USES_OF_ANY = 500
SHARED_CLASS_NAMES = 12  # classes of one name in two files: a reader must ask which is meant
RENAMED_MODULES = 0
STAR_IMPORTS = 0
FOREIGN = {"__call__", "encode", "decode", "generate"}  # signatures of transformers that tfm.compat repeats
TABLES = "tfm.tables"  # the one place of the core that imports the catalogue
TOP_LEVEL = set("pyproject.toml README.md LICENSE .ci .gitignore docs tfm train notebooks tests".split())

# What a union of options is called in `tfm.Config`, and the folder of its variants.
SLOTS = {
    "mixers": alternatives(type_hints(Config)["mixer"]),
    "positions": alternatives(type_hints(Config)["position"]),
    "residuals": alternatives(type_hints(Config)["residual"]),
    "feed_forwards": alternatives(type_hints(Config)["feed_forward"]),
    "inputs": alternatives(type_hints(Config)["input"]),
    "patterns": alternatives(type_hints(Softmax)["pattern"]),
}
VARIANT_TABLES = {
    "mixers": MIXERS,
    "positions": POSITIONS,
    "residuals": RESIDUALS,
    "feed_forwards": FEED_FORWARDS,
    "inputs": INPUTS,
    "patterns": PATTERNS,
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


@functools.cache
def files() -> dict[str, list[ast.AST]]:
    """The nodes of the files of tfm and train, by name."""
    gc.disable()  # nothing here is garbage, and the collector would look at half a million nodes again and again
    walked = {str(path.relative_to(ROOT)): parse(path.read_text()) for path in SOURCES}
    gc.freeze()
    gc.enable()
    return walked


def parse(code: str) -> list[ast.AST]:
    """The nodes of code."""
    return [*ast.walk(ast.parse(code))]


def all_of(kind: type[Node]) -> list[tuple[str, Node]]:
    """The nodes of one kind in all files, with the names of their files."""
    return [(name, node) for name, nodes in files().items() for node in nodes if isinstance(node, kind)]


def test_lengths_of_files():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > LINES_OF_A_FILE} == {}


@pytest.mark.slow
def test_lengths_of_functions():
    lengths = {f"{name}:{function.name}": code_lines(function) for name, function in all_of(ast.FunctionDef)}
    assert {name: lines for name, lines in lengths.items() if lines > LINES_OF_A_FUNCTION} == {}


def parameters(function: ast.FunctionDef) -> list[ast.arg]:
    """What a function takes, but for `self`."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return [argument for argument in arguments if argument.arg != "self"]


def takes_arrays(function: ast.FunctionDef) -> bool:
    """Whether a function is one of arrays: a parameter or the result is said to be an Array."""
    annotations = [*(argument.annotation for argument in parameters(function)), function.returns]
    return any(re.search(r"\bArray\b", ast.unparse(annotation)) for annotation in annotations if annotation)


def test_parameters_of_functions():
    excess = []
    for name, function in all_of(ast.FunctionDef):
        is_foreign = name.startswith("tfm/compat/") and function.name in FOREIGN
        limit = PARAMETERS_OF_ARRAYS if takes_arrays(function) else PARAMETERS
        if len(parameters(function)) > limit and not is_foreign:
            excess.append(f"{name}:{function.name}")
    assert excess == []


def imported_modules(nodes, modules):
    """The modules of the project that a file imports anywhere, in functions and for types too; `tfm` imports lazily."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules else node.module for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)


@functools.cache
def imports() -> dict[str, set[str]]:
    """The modules that each module of the project imports, as dotted names."""
    modules = {
        name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): nodes for name, nodes in files().items()
    }
    return {name: {*imported_modules(nodes, modules)} - {"tfm"} for name, nodes in modules.items()}


def test_no_files_import_each_other_in_a_circle():
    graph = imports()
    assert len([*TopologicalSorter(graph).static_order()]) == len(graph)  # raises CycleError


def test_no_folders_import_each_other_in_a_circle():
    """Arrows lead down; a folder and the folders in it are one room. The tables of variants alone may lead up, from the
    core to the catalogue."""

    def folder(name):
        return name if (ROOT / name.replace(".", "/")).is_dir() else name.rpartition(".")[0]

    graph: dict[str, set[str]] = {}
    for name, imported in imports().items():
        if _nested(name, TABLES):
            continue
        folders = {folder(module) for module in imported}
        graph.setdefault(folder(name), set()).update(target for target in folders if not _nested(target, folder(name)))
    assert len([*TopologicalSorter(graph).static_order()]) >= len(graph)  # raises CycleError


def _nested(first: str, second: str) -> bool:
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")


# Files of the core that import the catalogue beside its tables, which is not for long unless a reason stands here.
CORE_IMPORTS_CATALOGUE = {
    "tfm/__init__.py",  # the public names
    "tfm/compat/forward.py",
    "tfm/hf/family.py",
}


def importers(package: str, *outside: str, besides: str = " ") -> set[str]:
    """The files that import a package beside a package in it, but for those below some folders."""
    names = {name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): name for name in files()}
    return {
        names[module]
        for module, imported in imports().items()
        if any(_nested(target, package) and "." in target and not target.startswith(besides) for target in imported)
        if not names[module].startswith(outside)
    }


def test_the_core_imports_the_catalogue_through_its_tables_alone():
    """Options of the catalogue are free of jax, and part of the configuration."""
    code = importers("tfm.catalogue", "tfm/catalogue/", "tfm/tables/", "train/", besides="tfm.catalogue.options")
    assert code == CORE_IMPORTS_CATALOGUE


def test_training_imports_no_tool():
    """`train/NAME.py` is the command of a tool; nothing else of train imports train/lab."""
    assert {name for name in importers("train.lab", "train/lab/") if not is_command(name)} == set()


def is_command(name: str) -> bool:
    """Whether a file is the few lines that keep `python -m train.NAME`, for a tool of train/lab of this name."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if line.strip()]
    tool = ROOT / "train/lab" / Path(name).stem
    has_tool = tool.is_dir() or tool.with_suffix(".py").exists()
    return bool(re.fullmatch(r"train/\w+\.py", name)) and has_tool and len(lines) <= LINES_OF_A_COMMAND


def test_uses_of_any():
    assert sum(name.id == "Any" for _, name in all_of(ast.Name)) <= USES_OF_ANY


def test_class_names_with_two_definitions():
    definitions = Counter(node.name for _, node in all_of(ast.ClassDef))
    shared = sorted(name for name, count in definitions.items() if count > 1)
    assert len(shared) <= SHARED_CLASS_NAMES, shared


def renamed_modules(nodes: list[ast.AST], modules: Container[str]) -> set[str]:
    """The modules of the project that code imports under another name than their own."""
    names = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            names += [(f"{node.module}.{alias.name}", alias) for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [(alias.name, alias) for alias in node.names]
    return {
        f"{module} as {alias.asname}"
        for module, alias in names
        if module in modules and alias.asname and alias.asname != module.rpartition(".")[2]
    }


def test_modules_keep_their_names():
    renamed = {name: renamed_modules(nodes, imports()) for name, nodes in files().items()}
    assert sum(map(len, renamed.values())) <= RENAMED_MODULES, {name: names for name, names in renamed.items() if names}


def test_a_renamed_module_is_noticed():
    code = (
        "import train.main as trainer\nfrom tfm import ops as products, masks\nimport jax.numpy as jnp\nimport tfm.ops"
    )
    assert renamed_modules(parse(code), {"train.main", "tfm.ops", "tfm.masks"}) == {
        "train.main as trainer",
        "tfm.ops as products",
    }


def test_names_are_imported_one_by_one():
    stars = [name for name, node in all_of(ast.ImportFrom) for alias in node.names if alias.name == "*"]
    assert len(stars) <= STAR_IMPORTS, stars


def test_fields_of_the_configuration():
    assert len(dataclasses.fields(Config)) <= FIELDS


def test_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= DEPENDENCIES


def test_top_level():
    assert {name.split("/")[0] for name in tracked()} <= TOP_LEVEL


def test_every_variant_stands_in_a_table():
    assert {slot: [*table] for slot, table in VARIANT_TABLES.items()} == {slot: [*tags] for slot, tags in SLOTS.items()}


# What a field of `tfm.Config` is called that chooses a variant of a folder.
FIELD = {folder: folder.removesuffix("s") for folder in SLOTS}
TAGS = [(folder, tag) for folder, variants in SLOTS.items() for tag in variants]

# Where variants are listed: their options, the tables, presets and Hugging Face families.
LISTS = (
    r"tfm/config/.*|tfm/catalogue/options/.*|tfm/tables(/.*|\.py)|tfm/hf/.*|tfm/__init__\.py|train/settings/recipes/.*|"
    r"train/tasks/\w+/(preset|towers)\.py"
)

# Tags that are also words for something else. Of these, only code counts that names the variant.
WORDS = set(
    """
    channel_groups characters compressed conditional delta dense experts fixed frames full global huang learned linear
    local none parallel patches post pre reversible rotary shaw sinusoidal sliding softmax spectrogram strided swin t5
    tokens transient tubes windows beit detr
    """.split()
)

# Files that name variants of other files, beside the catalogue, presets and Hugging Face families.
EXCEPTIONS = {
    "tfm/attention/project.py": ("softmax",),  # heads are what softmax attention, and what wraps it, makes of states
    "train/lab/timing/random_task.py": ("tokens", "pre"),  # the plain model that train.bench times
    "train/lab/timing/peers/torch_mixers.py": ("linear",),  # the peer in PyTorch that a variant is timed against
    "tfm/catalogue/decoding/speculation.py": ("softmax",),  # whose states can forget tokens
    "tfm/catalogue/inputs/characters.py": ("tokens",),  # the table of types is that of tokens
    "tfm/catalogue/models/interpolation.py": ("merging", "patches"),  # grids of images of another size
    "train/tasks/answer_picture/options.py": ("tokens_and_patches",),  # which alone reads questions with pictures
}


def variants_named(nodes: list[ast.AST]) -> set[tuple[str, str]]:
    """Folders and tags of the variants that code names.

    It names one by its class of options, by its module, as the value of a field of options, and in a comparison with a
    tag. Texts of errors may name one to try.
    """
    classes = {cls.__name__: (folder, tag) for folder, tag in TAGS for cls in [SLOTS[folder][tag]]}
    folders = {field: folder for folder, field in FIELD.items()}
    named: set[tuple[str, str]] = set()
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("tfm."):
                modules = {module, *(f"{module}.{alias.name}" for alias in names)}
                parts = [name.removeprefix("tfm.").removeprefix("catalogue.").split(".") for name in modules]
                named |= {(part[0], part[-1]) for part in parts if len(part) > 1}
                is_options = module.startswith(("tfm.config.", "tfm.catalogue.options."))
                named |= {classes[alias.name] for alias in names if is_options and alias.name in classes}
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
from tfm.catalogue.residuals.rezero import RESIDUAL
fields = {"model.mixer": "linformer", "rank": 4, "model.period.1.position": "t5"}
if config.input.name in ("patches", "merging"):
    raise ValueError("try mixer=performer")
print(tfm.Shaw())
"""
    assert {("mixers", "softmax"), ("mixers", "linformer"), ("residuals", "rezero")} <= variants_named(parse(code))
    assert {tag for _, tag in variants_named(parse(code))} == {
        *("softmax", "alibi", "rezero", "linformer", "t5", "patches", "merging", "shaw")
    }


def test_no_code_names_the_variant_of_another_file():
    """The catalogue, a variant's own file and those that build on it, presets and Hugging Face families name it."""
    own = rf"tfm/(catalogue/)?({'|'.join(SLOTS)})/(\w+/)*(?!__init__)\w+\.py|tfm/(residuals|inputs)\.py"
    places = re.compile(rf"{own}|{LISTS}")
    named = {}
    for name, nodes in files().items():
        tags = {tag for _, tag in variants_named(nodes)} - {*EXCEPTIONS.get(name, ())}
        if tags and not places.fullmatch(name):
            named[name] = tags
    assert named == {}


def test_exceptions_are_needed():
    unneeded = {
        (name, tag)
        for name, tags in EXCEPTIONS.items()
        for folder, tag in TAGS
        if tag in tags
        if not re.search(rf"\b({tag}|{SLOTS[folder][tag].__name__})\b", (ROOT / name).read_text())
    }
    assert unneeded == set()


def code_words(nodes: list[ast.AST]) -> str:
    """The names and the texts of code in lower case; comments and docstrings may refer to what they want."""
    words = []
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if id(node) not in docstrings:
            fields = (value for _, value in ast.iter_fields(node))
            words += [value for value in fields if isinstance(value, str)]
    return "\n".join(words).lower()


def test_cost_of_a_variant():
    """In the code of tfm and train its name occurs in its options, its own file, tables, presets and Hugging Face
    families."""
    tags = sorted((tag for _, tag in TAGS if tag not in WORDS), key=len, reverse=True)  # one may begin as another
    word = re.compile(rf"(?<![a-z])({'|'.join(tags)})(?![a-z])")
    mentions = {name: {*word.findall(code_words(nodes))} for name, nodes in files().items()}
    allowed = re.compile(LISTS)
    foreign = {
        name: tags - {*EXCEPTIONS.get(name, ()), Path(name).stem}
        for name, tags in mentions.items()
        if not allowed.fullmatch(name)
    }
    assert {name: tags for name, tags in foreign.items() if tags} == {}


def test_every_variant_has_a_row():
    configs = [stage for row in VARIANTS.values() for stage in row.config.stage_configs]
    chosen = {(name.rpartition(".")[2], value) for config in configs for name, value in flatten(config).items()}
    assert [tag for folder, tag in TAGS if (FIELD[folder], tag) not in chosen] == []


def names_of_variants(nodes: list[ast.AST]) -> set[str]:
    """Classes of options, tags and modules of variants that code names; remedies of errors may name one to try."""
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    }
    without_remedies = "\n".join(re.sub(r"; try .*", "", text) for text in texts)
    named = {tag for _, tag in variants_named(nodes)}
    for folder, tag in TAGS:
        named |= {SLOTS[folder][tag].__name__} & names
        named |= {tag} & (texts - {"none"})
        named |= {*re.findall(rf"\b{FIELD[folder]}={tag}\b", without_remedies)}
    return named


def test_the_forward_path_names_no_variant():
    named = {
        name: names_of_variants(nodes)
        for name, nodes in files().items()
        if name.startswith(("tfm/layers/", "tfm/models/"))
    }
    assert {name: names for name, names in named.items() if names} == {}
