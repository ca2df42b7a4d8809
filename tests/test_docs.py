"""The README and the pages of docs/: what they claim is run, and what they name exists."""

import ast
import contextlib
import dataclasses
import importlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import tfm
from train import UserError
from train.settings import flags, resolve

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
PAGES = [path for path in PAGES if "generated" not in path.parts]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)

# Pages with Python, in the order in which a reader meets them: later ones use the folders that earlier ones write.
PYTHON_PAGES = (
    "README.md",
    "docs/guide/huggingface.md",
    "docs/guide/compat.md",
    "docs/library/functions.md",
    "docs/sentences.md",
    "docs/variants.md",
)


def fences(path: Path) -> list[tuple[str, str]]:
    """The blocks of a page: language and text."""
    return FENCE.findall(path.read_text())


def commands(path: Path) -> list[str]:
    """Every command line of the project on a page, without comments and prompts."""
    lines = []
    for language, text in fences(path):
        shown = [*text.replace("\\\n", " ").splitlines(), ""]
        for line, following in pairwise(shown):
            if following.startswith("error: "):
                continue
            command = line.removeprefix("$ ") if line.startswith("$ ") else line if language == "bash" else ""
            match = re.search(r"python -m (train\.\w+.*)", command)
            if match:
                lines.append(re.sub(r"\s+#.*| &$|; ?done$| > .*", "", match[1]))
    return lines


COMMANDS = sorted({(str(path.relative_to(ROOT)), command) for path in PAGES for command in commands(path)})


# Scripts of measurements, which take minutes; a variant, a task and a server, which have tests of their own.
NOT_RUN = {"docs/measured.md", "docs/library/contribute.md", "docs/library/task.md", "docs/guide/export.md"}

# Flags that may be repeated, and list values of others.
REPEATED = {"train.compare": ("--vary=", "--run=", "--tune=")}


def close(expected: str, printed: str) -> bool:
    """Whether words are equal, numbers nearly; `...` stands for any words."""
    pattern, words = expected.split(), printed.split()
    if not pattern:
        return not words
    if pattern[0] == "...":
        return any(close(" ".join(pattern[1:]), " ".join(words[start:])) for start in range(len(words) + 1))
    if not words or not _same_word(pattern[0], words[0]):
        return False
    return close(" ".join(pattern[1:]), " ".join(words[1:]))


def _same_word(expected: str, word: str) -> bool:
    """Equal, with two parts in a hundred for numbers with a point."""
    decimal = re.compile(r"-?\d+\.\d+")
    if decimal.sub("#", expected) != decimal.sub("#", word):
        return False
    pairs = zip(decimal.findall(expected), decimal.findall(word), strict=True)
    return all(float(value) == pytest.approx(float(reference), rel=0.02, abs=0.02) for reference, value in pairs)


def test_numbers_may_differ_a_little_and_words_may_not():
    assert close("a 1.00 ... (2, 3) z", "a 1.01 b c\nd (2, 3)\nz")
    assert not close("a 1.00", "a 1.10")
    assert not close("(2, 3)", "(2, 4)")
    assert not close("a ... z", "a b")
    assert not close("a", "a b")


@pytest.mark.slow
def test_python_of_the_pages_prints_what_stands_below_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with_python = {str(path.relative_to(ROOT)) for path in PAGES if any(lang == "python" for lang, _ in fences(path))}
    assert with_python - NOT_RUN == {*PYTHON_PAGES}
    for page in PYTHON_PAGES:
        blocks, names = fences(ROOT / page), {"__name__": "page"}
        for (language, source), (_, expected) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
            if language != "python":
                continue
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(source, f"{page}", "exec"), names)
            expected = "\n".join(line for line in expected.splitlines() if not line.startswith("UserWarning"))
            assert close(expected, printed.getvalue()), f"{page}:\n{source}\nprints\n{printed.getvalue()}"


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_flags_of_commands_exist(page, command):
    name, *words = shlex.split(re.sub(r"[\[\]|]", " ", command))
    module = importlib.import_module(name)
    if not hasattr(module, "main"):
        module = importlib.import_module(f"{name}.__main__")
    words = [word for word in words if word.startswith("--") and not word.startswith(REPEATED.get(name, "  "))]
    options = [field.name for field in dataclasses.fields(module.Options)] if hasattr(module, "Options") else []
    own, shared = flags.split_argv(words, options)
    if options:
        _unknown(lambda: flags.build(module.Options, flags.parse(own)))
    passes_on = not options or name in (
        "train.bench",
        "train.check",
        "train.compare",
        "train.evaluate",
        "train.glue",
        "train.inspect",
        "train.plan",
        "train.predict",
    )
    assert passes_on or not shared, f"{shared} are no flags of {name}"
    if passes_on and shared:
        words = resolve.infer_task(shared, lambda *_: {"task": "mlm"})
        _unknown(lambda: resolve.resolve(words, lambda *_: {"task": "mlm"}, lambda *_: {}))


def _unknown(parse) -> None:
    """Fails where a flag is unknown; values may be placeholders."""
    with contextlib.suppress(UserError, ValueError):
        parse()
        return
    with pytest.raises((UserError, ValueError)) as error:
        parse()
    assert "unknown" not in str(error.value)


def test_links_lead_to_files_and_headings():
    for path in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)):
            file, _, heading = target.partition("#")
            if file.startswith("http"):
                continue
            page = (path.parent / file).resolve() if file else path
            assert page.exists(), f"{path.relative_to(ROOT)}: {target}"
            if heading and page.suffix == ".md":
                titles = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
                slugs = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
                assert heading in slugs, f"{path.relative_to(ROOT)}: {target}"


def test_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 250
    before = text[: text.index("python -m train.main --task=mlm")]
    assert len(re.findall(r"^#+ ", before, re.MULTILINE)) <= 2


def test_the_reference_has_a_page_for_every_public_module():
    (table,) = re.findall(r"^ROOMS = (\{.*?^\})", (ROOT / "docs/conf.py").read_text(), re.MULTILINE | re.DOTALL)
    listed = {prefix for prefixes in ast.literal_eval(table).values() for prefix in prefixes}
    assert listed == {module.split(".")[0] for module in tfm.PUBLIC}


def test_what_was_measured_has_its_number_once_and_pointers_lead_to_an_entry():
    entries = re.findall(r"^\*\*(M\d+)\. ", (ROOT / "docs/measured.md").read_text(), re.MULTILINE)
    assert sorted(entries, key=lambda entry: int(entry[1:])) == [f"M{n}" for n in range(1, len(entries) + 1)]
    sources = [*ROOT.glob("tfm/**/*.py"), *ROOT.glob("train/**/*.py")]
    pointers = {pointer for path in sources for pointer in re.findall(r"\bM\d+\b", path.read_text())}
    assert pointers <= {*entries}
    assert pointers, "the code points to what was measured"


@pytest.mark.slow
def test_the_variant_of_the_page_passes_the_contracts(tmp_path):
    """Its three blocks, where the page puts them, in a copy of the project."""
    page = (ROOT / "docs/library/contribute.md").read_text()
    options, functions, row = (text for language, text in FENCE.findall(page) if language == "python")
    for folder in ("tfm", "train", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    catalogue, union = tmp_path / "tfm/config/mixers/static.py", tmp_path / "tfm/config/mixers/__init__.py"
    catalogue.write_text(f"{catalogue.read_text()}\n\n{options}")
    text = union.read_text().replace("mixers.static import ", "mixers.static import Average, ")
    union.write_text(text.replace("Mixer = (\n", "Mixer = (\n    Average |\n"))
    (tmp_path / "tfm/mixers/static/average.py").write_text(functions)
    rows = tmp_path / "tests/variants.py"
    rows.write_text(rows.read_text().replace("VARIANTS = {\n", f"VARIANTS = {{\n{row}", 1))
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "tests/contracts.py", "-k", "average"]
    result = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", result.stdout)[1]) >= 8, "values, scan, meshes and more"
