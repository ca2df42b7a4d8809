"""The site: `python -m sphinx -W docs build/docs`. Pages are the files of this folder; the reference, the catalogue of
variants and the pages of notebooks are generated from the code when the site is built."""

import importlib
import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
GENERATED = DOCS / "generated"
sys.path[:0] = [str(ROOT), str(DOCS)]

import catalogue_page  # noqa: E402

import tfm  # noqa: E402

project = "tfm"
copyright = "the tfm authors"  # noqa: A001
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
html_theme = "furo"
html_title = "tfm"
exclude_patterns = ["pictures"]
default_role = "code"
nb_execution_mode = "off"  # notebooks are run by a test, and keep their outputs
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
add_module_names = False
copybutton_exclude = ".linenos, .gp, .go"
highlight_language = "text"
# `-t online`: links to other projects; without a network they are left out.
intersphinx_mapping = {
    name: (f"https://{host}", None)
    for name, host in {
        "python": "docs.python.org/3",
        "jax": "docs.jax.dev/en/latest",
        "flax": "flax.readthedocs.io/en/latest",
        "optax": "optax.readthedocs.io/en/latest",
    }.items()
    if tags.has("online")  # noqa: F821
}
suppress_warnings = ["myst-nb.lexer"]  # of notebooks whose cells name no language

LINK_TO_CODE = re.compile(r"\[([^\]\n]+)\]\((?:\.\./)*(?:tfm|train|tests)(?:/[^)]*)?\)")

# Rooms of the library, as headings of the reference.
ROOMS = {
    "Configuration": ("config", "options", "axes"),
    "Parameters": ("params", "low_rank", "int8", "quantization"),
    "Operations": ("ops", "norms", "sharding"),
    "Masks": ("masks",),
    "Attention": ("attention",),
    "Variants": ("tables", "interfaces", "positions"),
    "Layers": ("layers", "inputs", "feed_forwards"),
    "Models": ("models", "nnx"),
    "Catalogue": ("catalogue",),
    "Losses": ("losses", "auxiliary"),
    "Decoding": ("decoding",),
    "Hugging Face folders": ("hf",),
}

# What the pages use from Python beside `tfm`, by module.
BESIDE = {
    "Scripts of the old Flax classes": {"tfm.compat": ("shift_tokens_right", "FlaxBertForSequenceClassification")},
    "The trainer from Python": {
        "train.embedding": ("embed",),
        "train.runs.run_folder": ("open_folder", "RunFolder"),
        "train.tasks.presets": ("model",),
        "train.sentences": ("evaluate", "read_tasks"),
        "train.lab.sentences.settings": ("PROTOCOLS", "Settings"),
        "train": ("UserError",),
    },
}


def write_reference() -> None:
    """A page for each room: everything that `tfm` lists as public."""
    rest = set(tfm.PUBLIC.values())
    folder = GENERATED / "reference"
    folder.mkdir(parents=True)
    for title, prefixes in ROOMS.items():
        modules = sorted({module for module in tfm.PUBLIC.values() if module.split(".")[1] in prefixes})
        rest -= {*modules}
        lines = [title, "=" * len(title), ""]
        for module in modules:
            for name in [name for name, home in tfm.PUBLIC.items() if home == module]:
                lines += _directive(module, name)
        (folder / f"{prefixes[0]}.rst").write_text("\n".join(lines))
    for title, modules in BESIDE.items():
        lines = [title, "=" * len(title), ""]
        for module, names in modules.items():
            for name in names:
                lines += _directive(module, name)
        (folder / f"{title.split()[-1].lower()}.rst").write_text("\n".join(lines))
    assert not rest, f"no room of the reference for {', '.join(sorted(rest))}"


def _directive(module: str, name: str) -> list[str]:
    """The lines that document a public name."""
    value = getattr(importlib.import_module(module), name)
    if isinstance(value, type):
        members = ["   :members:", "   :exclude-members: replace, count, index"]
        return [f".. autoclass:: {module}.{name}", *members, ""]
    if callable(value):
        return [f".. autofunction:: {module}.{name}", ""]
    return [f".. py:data:: {module}.{name}", "", *(f"   {line}" for line in _comment(module, name)), ""]


def _comment(module: str, name: str) -> list[str]:
    """The comment above a constant."""
    lines = (ROOT / f"{module.replace('.', '/')}.py").read_text().splitlines()
    last = next(index for index, line in enumerate(lines) if re.match(rf"{name}\b.*=", line))
    first = last
    while lines[first - 1].startswith("#"):
        first -= 1
    return [line.removeprefix("#").strip() for line in lines[first:last]]


def copy_notebooks() -> None:
    """The notebooks, as pages."""
    folder = GENERATED / "notebooks"
    folder.mkdir(parents=True)
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        text = re.sub(r"\]\(\.\./docs/", "](../../", notebook.read_text())
        (folder / notebook.name).write_text(LINK_TO_CODE.sub(r"\1", text))


def resolve_links(app, page: str, source: list[str]) -> None:
    """Links of a page to notebooks lead to their pages; links to code become their texts."""
    if not page.startswith("generated/"):
        to_notebooks = r"](" + "../" * page.count("/") + "generated/notebooks/"
        source[0] = LINK_TO_CODE.sub(r"\1", re.sub(r"\]\((?:\.\./)+notebooks/", to_notebooks, source[0]))


def resolve_readme(app, relative, parent: str, content: list[str]) -> None:
    """The same for the README, which the first page includes: its links are relative to the root."""
    text = content[0].replace("](docs/", "](").replace("](notebooks/", "](generated/notebooks/")
    content[0] = LINK_TO_CODE.sub(r"\1", text)


def list_fields(app, kind: str, name: str, value, options, lines: list[str]) -> None:
    """`field: meaning` of docstrings, a line each, as lists."""
    field = re.compile(r"^(\w+(?:, \w+)*): (.*)")
    text = re.sub(r":(\n\n {4})", r"::\1", "\n".join(lines))  # an example
    lines, result = text.split("\n"), lines
    shown: list[str] = []
    in_field = False
    for line in lines:
        match = field.match(line)
        if match and shown and shown[-1] and not in_field:
            match = None  # a sentence that goes on
        if line.startswith("- ") and shown and shown[-1] and not shown[-1].startswith(("- ", "  ")):
            shown.append("")
        if match:
            shown.append(f"* **{match[1]}**: {_escape(match[2])}")
        elif in_field and line.strip():
            shown.append(f"  {_escape(line.strip())}")
        else:
            shown.append(_escape(line))
        in_field = bool(match) or (in_field and bool(line.strip()))
    result[:] = shown


def _escape(text: str) -> str:
    """Stars are no emphasis."""
    return text.replace("*", "\\*")


def setup(app) -> None:
    """Makes the generated pages."""
    shutil.rmtree(GENERATED, ignore_errors=True)
    write_reference()
    copy_notebooks()
    catalogue_page.write(GENERATED / "catalogue.md")
    app.connect("source-read", resolve_links)
    app.connect("include-read", resolve_readme)
    app.connect("autodoc-process-docstring", list_fields)
