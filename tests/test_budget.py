"""What may grow and what may not: these numbers are raised in a commit of their own, with the reason."""

import ast
import dataclasses
import functools
import re
import subprocess
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from variants import VARIANTS

from tfm.config.mixers import Softmax
from tfm.config.model import Config
from tfm.options.choices import alternatives, type_hints
from tfm.options.dotted import flatten
from tfm.tables.inputs import INPUTS
from tfm.tables.mixers import MIXERS
from tfm.tables.patterns import PATTERNS
from tfm.tables.positions import POSITIONS
from tfm.tables.residuals import RESIDUALS

ROOT = Path(__file__).parent.parent
SOURCES = sorted([*ROOT.glob("tfm/**/*.py"), *ROOT.glob("train/**/*.py")])

LINES_OF_A_FILE = 300
LINES_OF_A_FUNCTION = 40  # without its docstring
PARAMETERS = 7
PARAMETERS_OF_ARRAYS = 9  # queries, keys, values, mask and bias are five already
FIELDS = 35  # of tfm.Config itself
DEPENDENCIES = 15
FOREIGN = {"__call__", "encode", "decode", "generate"}  # signatures of transformers that tfm.compat repeats
TABLES = "tfm.tables"  # the one place of the core that imports the catalogue
TOP_LEVEL = set("pyproject.toml README.md LICENSE .ci .gitignore docs tfm train notebooks tests".split())

# What a union of options is called in `tfm.Config`, and the folder of its variants.
SLOTS = {
    "mixers": alternatives(type_hints(Config)["mixer"]),
    "positions": alternatives(type_hints(Config)["position"]),
    "residuals": alternatives(type_hints(Config)["residual"]),
    "inputs": alternatives(type_hints(Config)["input"]),
    "patterns": alternatives(type_hints(Softmax)["pattern"]),
}
VARIANT_TABLES = {
    "mixers": MIXERS,
    "positions": POSITIONS,
    "residuals": RESIDUALS,
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
def trees() -> dict[str, ast.Module]:
    """The parsed files of tfm and train, by name."""
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in SOURCES}


def test_lengths_of_files():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > LINES_OF_A_FILE} == {}


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of tfm and train, with the names of their files."""
    for name, tree in trees().items():
        yield from ((name, node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_lengths_of_functions():
    lengths = {f"{name}:{function.name}": code_lines(function) for name, function in functions()}
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
    for name, function in functions():
        is_foreign = name.startswith("tfm/compat/") and function.name in FOREIGN
        limit = PARAMETERS_OF_ARRAYS if takes_arrays(function) else PARAMETERS
        if len(parameters(function)) > limit and not is_foreign:
            excess.append(f"{name}:{function.name}")
    assert excess == []


def imported_modules(tree, modules):
    """The modules of the project that a file imports anywhere, in functions and for types too; `tfm` imports lazily."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules else node.module for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)


@functools.cache
def imports() -> dict[str, set[str]]:
    """The modules that each module of the project imports, as dotted names."""
    modules = {
        name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): tree for name, tree in trees().items()
    }
    return {name: {*imported_modules(tree, modules)} - {"tfm"} for name, tree in modules.items()}


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
    r"tfm/config/.*|tfm/catalogue/options/.*|tfm/tables(/.*|\.py)|tfm/hf/.*|tfm/__init__\.py|train/settings/presets/.*"
)

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
    assert {("mixers", "softmax"), ("mixers", "linformer"), ("residuals", "rezero")} <= variants_named(ast.parse(code))
    assert {tag for _, tag in variants_named(ast.parse(code))} == {
        *("softmax", "alibi", "rezero", "linformer", "t5", "patches", "merging", "shaw")
    }


def test_no_code_names_the_variant_of_another_file():
    """The catalogue, a variant's own file and those that build on it, presets and Hugging Face families name it."""
    own = rf"tfm/(catalogue/)?({'|'.join(SLOTS)})/(\w+/)*(?!__init__)\w+\.py"
    places = re.compile(rf"{own}|{LISTS}")
    named = {}
    for name, tree in trees().items():
        tags = {tag for _, tag in variants_named(tree)} - {*EXCEPTIONS.get(name, ())}
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


def code_words(tree: ast.AST) -> str:
    """The names and the texts of code in lower case; comments and docstrings may refer to what they want."""
    words = []
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) not in docstrings:
            fields = (value for _, value in ast.iter_fields(node))
            words += [value for value in fields if isinstance(value, str)]
    return "\n".join(words).lower()


def test_cost_of_a_variant():
    """In the code of tfm and train its name occurs in its options, its own file, tables, presets and Hugging Face
    families."""
    tags = [tag for _, tag in TAGS if tag not in WORDS]
    word = re.compile(rf"(?<![a-z])({'|'.join(tags)})(?![a-z])")
    mentions = {name: {*word.findall(code_words(tree))} for name, tree in trees().items()}
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


def names_of_variants(tree: ast.AST) -> set[str]:
    """Classes of options, tags and modules of variants that code names; remedies of errors may name one to try."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    }
    without_remedies = "\n".join(re.sub(r"; try .*", "", text) for text in texts)
    named = {tag for _, tag in variants_named(tree)}
    for folder, tag in TAGS:
        named |= {SLOTS[folder][tag].__name__} & names
        named |= {tag} & (texts - {"none"})
        named |= {*re.findall(rf"\b{FIELD[folder]}={tag}\b", without_remedies)}
    return named


def test_the_forward_path_names_no_variant():
    named = {
        name: names_of_variants(tree)
        for name, tree in trees().items()
        if name.startswith(("tfm/layers/", "tfm/models/"))
    }
    assert {name: names for name, names in named.items() if names} == {}
