"""The pages that show how a variant and a task are added, followed word for word in a copy of the project."""

import json

import pytest
from guide.followed import call, commands, copy_project, follow, steps
from guide.pages import ROOT, blocks
from small import write_text

LIBRARY = ROOT / "docs/library"
PAGES = [LIBRARY / "contribute.md", LIBRARY / "task.md"]
BUDGETS = ["tests/test_budget.py", "tests/test_hooks.py", "tests/test_traced.py", "tests/test_names.py"]

FLAGS = (
    "--data=text.txt --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --tokenizer.vocab=400 "
    "--model.init-std=0.1 --batch.length=16 --steps=250 --optim.rate=1e-2 --eval.every=250 --checkpoint.every=250"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_where_it_goes(page):
    code = [block.text for block in blocks(page) if block.language == "python"]
    assert code
    assert [text for text in code if text not in {step.block for step in steps(page)}] == []


@pytest.fixture
def copy(tmp_path):
    """The project, with the variant and the task of the pages."""
    copy_project(tmp_path)
    for page in PAGES:
        follow(page, tmp_path)
    return tmp_path


@pytest.mark.slow
def test_budgets_hold_and_the_commands_of_the_pages_end_well(copy):
    call(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *BUDGETS)
    for page in PAGES:
        for words in commands(page):
            assert words[0] == "python"
            call(copy, *words[1:])


@pytest.mark.slow
def test_the_task_of_the_page_learns_resumes_and_is_evaluated(copy):
    write_text(copy / "text.txt", lines=1500)
    call(copy, "-m", "train.main", "--task=order", "--out=run", *FLAGS.split())
    result = json.loads((copy / "run/result.json").read_text())
    assert result["eval_majority"] == 0.5
    assert result["eval_accuracy"] > 0.7, "the order of random words is seen at the stop at their end"
    call(copy, "-m", "train.main", "--resume", "--out=run", "--steps=260")
    out, _ = call(copy, "-m", "train.evaluate", "--run=run", "--data=text.txt")
    assert json.loads(out)["accuracy"] > 0.7
    out, err = call(copy, "-m", "train.main", "--task=order", "--help")
    assert "share of sentences that are" in out + err
