"""The task of docs/library/task.md: its blocks, where the page puts them, in a copy of the project."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small import write_text

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/library/task.md"

FLAGS = (
    "--data=text.txt --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --tokenizer.vocab=400 "
    "--model.init-std=0.1 --batch.length=16 --steps=250 --optim.rate=1e-2 --eval.every=250 --checkpoint.every=250"
)


# A block and where it goes: the path of a file, or of one that is there and the line after which it comes.
BLOCK = re.compile(
    r"^`([\w/.]+)`(?:, after the line `([^`]+)`)?:\n\n```(?:python)?\n(.*?)^```\n", re.MULTILINE | re.DOTALL
)


@pytest.fixture
def copy(tmp_path):
    """The project with the task of the page."""
    for folder in ("tfm", "train"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, line, block in BLOCK.findall(PAGE.read_text()):
        path = tmp_path / name
        if not line:
            path.parent.mkdir(exist_ok=True)
            path.write_text(block)
            continue
        before, after = path.read_text().split(f"\n{line}\n")
        path.write_text(f"{before}\n{line}\n{block}{after}")
    write_text(tmp_path / "text.txt", lines=1500)
    return tmp_path


def call(folder, *command):
    """Stdout and stderr of a command that ends well."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "TFM_CACHE": str(folder / "cache")}
    words = [sys.executable, "-m", *command]
    result = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout, result.stderr


@pytest.mark.slow
def test_the_task_of_the_page_learns_resumes_and_is_evaluated(copy):
    call(copy, "train.main", "--task=order", "--out=run", *FLAGS.split())
    result = json.loads((copy / "run/result.json").read_text())
    assert result["eval_majority"] == 0.5
    assert result["eval_accuracy"] > 0.7, "the order of random words is seen at the stop at their end"
    call(copy, "train.main", "--resume", "--out=run", "--steps=260")
    out, _ = call(copy, "train.evaluate", "--run=run", "--data=text.txt")
    assert json.loads(out)["accuracy"] > 0.7
    out, err = call(copy, "train.main", "--task=order", "--help")
    assert "share of sentences that are" in out + err
