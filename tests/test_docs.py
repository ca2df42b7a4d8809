"""The README and the pages of docs/: what they claim is run, and what they name exists."""

import ast
import contextlib
import inspect
import io
import re
import textwrap

import pytest
from guide.pages import NOTEBOOKS, PAGES, ROOT, Block, blocks, close, files, links, name_of
from small import call

import tfm
from train import main

# Pages with Python, in the order in which a reader meets them: later ones use the folders that earlier ones write.
PYTHON_PAGES = (
    "README.md",
    "docs/guide/huggingface.md",
    "docs/guide/compat.md",
    "docs/library/functions.md",
    "docs/sentences.md",
    "docs/variants.md",
    "docs/compare.md",
)


# Scripts of measurements, which take minutes; what has a test of its own: a variant, a task, the plain pages, a server,
# the runner of mteb.
NOT_RUN = {
    "docs/guide/find.md",
    "docs/measured.md",
    "docs/library/contribute.md",
    "docs/library/task.md",
    "docs/library/plain.md",
    "docs/guide/export.md",
    "docs/guide/serve.md",
}


def test_numbers_may_differ_a_little_and_words_may_not():
    assert close("a 1.00 ... (2, 3) z", "a 1.01 b c\nd (2, 3)\nz")
    assert not close("a 1.00", "a 1.10")
    assert not close("(2, 3)", "(2, 4)")
    assert not close("a ... z", "a b")
    assert not close("a", "a b")


@pytest.mark.slow
def test_python_of_the_pages_prints_what_stands_below_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with_python = {name_of(path) for path in PAGES if any(block.language == "python" for block in blocks(path))}
    assert with_python - NOT_RUN == {*PYTHON_PAGES}
    assert call(main.main, "--task=mlm", "--steps=1", "--eval.final=false", "--out=runs/mlm-bert-tiny-1")[0] == 0
    for page in PYTHON_PAGES:
        shown, names = blocks(ROOT / page), {"__name__": "page"}
        for (_, language, source), following in zip(shown, [*shown[1:], Block("", "", "")], strict=True):
            expected = "" if following.language else following.text
            if language != "python":
                continue
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(source, f"{page}", "exec"), names)
            expected = "\n".join(line for line in expected.splitlines() if not line.startswith("UserWarning"))
            assert close(expected, printed.getvalue()), f"{page}:\n{source}\nprints\n{printed.getvalue()}"


def test_code_that_is_not_run_says_why():
    """Python that is named so is run by the test above, or in NOT_RUN."""
    for path in [*PAGES, *NOTEBOOKS]:
        for block in blocks(path):
            if not block.language and _is_python(block.text):
                assert re.fullmatch("not run: .+", block.mark), f"{name_of(path)}:\n{block.text}"


def _is_python(text: str) -> bool:
    """Whether a text is statements of Python, and not what some have printed."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return False
    calls = [node.value.func for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    statements = (ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef, ast.For, ast.With)
    return any(isinstance(func, ast.Name | ast.Attribute) for func in calls) or any(
        isinstance(node, statements) for node in body
    )


def test_links_lead_to_files_and_headings():
    for path in [*PAGES, *NOTEBOOKS]:
        for target in links(path):
            file, _, heading = target.partition("#")
            if file.startswith("http"):
                continue
            page = (path.parent / file).resolve() if file else path
            assert page.exists(), f"{name_of(path)}: {target}"
            if heading and page.suffix == ".md":
                titles = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
                slugs = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
                assert heading in slugs, f"{name_of(path)}: {target}"


# Files that a reader of the page makes, and those of transformers.
OF_THE_READER = {
    "tfm/catalogue/mixers/static/text_mean.py",
    "train/tasks/order/",
    *(f"train/tasks/order/{name}.py" for name in ("__init__", "options", "preset", "rows", "task")),
    "tests/models/*/test_modeling_flax_*.py",
}


def test_files_that_pages_name_exist():
    named = {file: name_of(path) for path in [*PAGES, *NOTEBOOKS] for file in files(path)}
    assert {file: page for file, page in named.items() if not any(ROOT.glob(file))}.keys() == OF_THE_READER, named
    assert len(named) > 50


def test_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 250
    before = text[: text.index("python -m train.main --task=mlm")]
    assert len(re.findall(r"^#+ ", before, re.MULTILINE)) <= 2


def test_the_reference_has_a_page_for_every_public_module():
    (table,) = re.findall(r"^ROOMS = (\{.*?^\})", (ROOT / "docs/conf.py").read_text(), re.MULTILINE | re.DOTALL)
    listed = {prefix for prefixes in ast.literal_eval(table).values() for prefix in prefixes}
    assert listed == {module.split(".")[1] for module in tfm.PUBLIC.values()}


def test_what_was_measured_has_its_number_once_and_pointers_lead_to_an_entry():
    entries = re.findall(r"^\*\*(M\d+)\. ", (ROOT / "docs/measured.md").read_text(), re.MULTILINE)
    assert len(entries) == len({*entries}) >= 67, "numbers may be left out, none comes twice"
    sources = [*ROOT.glob("tfm/**/*.py"), *ROOT.glob("train/**/*.py")]
    pointers = {pointer for path in sources for pointer in re.findall(r"\bM\d+\b", path.read_text())}
    assert pointers <= {*entries}
    assert pointers, "the code points to what was measured"


def test_what_was_measured_has_its_date_and_how_to_repeat_it():
    text = (ROOT / "docs/measured.md").read_text()
    entries = re.findall(r"^\*\*(M\d+)\. (.*?)(?=^\*\*M\d+\. |^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(entries) >= 47
    for tag, entry in entries:
        assert re.search(r"\((?:by )?\d{4}-\d\d-\d\d", entry), f"{tag} has no date"
        assert re.search(r"\*Repeat:\*\s+\S", entry), f"{tag} does not say how to repeat it"


FUNCTIONS = {
    name: inspect.unwrap(value)
    for name in tfm.__all__
    if inspect.isfunction(inspect.unwrap(value := getattr(tfm, name)))
}

# Public functions and classes that come from papers, beside the variants of the catalogue.
FROM_PAPERS = """
alibi T5Bias dropout position_similarity LowRank sentence_vector write_sentence masked_lm causal_lm seq2seq classify
next_sentence attend strided local_blocks summaries global_tokens sigmoid_losses feed_forward features
""".split()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstrings_of_public_functions(name):
    """They say shapes where arguments or results are arrays, and errors where the function itself raises some."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(FUNCTIONS[name]))).body[0]
    text = ast.get_docstring(tree)
    annotations = [argument.annotation for argument in (*tree.args.args, *tree.args.kwonlyargs)]
    has_arrays = any(node and re.search(r"\bArray\b", ast.unparse(node)) for node in (*annotations, tree.returns))
    assert not has_arrays or re.search(r"\[[\w.,]*\]", text), "shapes"
    assert not any(isinstance(node, ast.Raise) for node in ast.walk(tree)) or "Raises" in text, "errors"


@pytest.mark.parametrize("name", FROM_PAPERS)
def test_docstrings_name_their_paper(name):
    assert re.search(r"\b(19|20)\d\d\b", inspect.getdoc(getattr(tfm, name)))
