"""Commands that the pages show with their output print it.

A comment before a block says how: none, at once; `slow`, in the slow tier; `long: WHY`, not at all, but their flags are
parsed (test_flags.py).
"""

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from guide import pages
from PIL import Image
from small import call

from train import main

SHOWN = [
    (pages.name_of(path), block, shown)
    for path in pages.PAGES
    for block in pages.blocks(path)
    for shown in pages.shown(block)
]
RUN = [
    pytest.param(page, shown, id=f"{page}: {shown.command[:60]}", marks=pytest.mark.slow if block.mark else ())
    for page, block, shown in SHOWN
    if not block.mark.startswith("long: ")
]


def write_pets():
    """Pictures of cats, of which three are broken."""
    for index in range(20):
        path = Path(f"pets/cat/{index}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (index, 0, 0)).save(path)
    for index, content in ((17, b""), (18, b"no picture"), (19, b"none either")):
        Path(f"pets/cat/{index}.png").write_bytes(content)


def train_a_step():
    """The run of the README, cut short."""
    assert call(main.main, "--task=mlm", "--steps=1", "--eval.final=false", "--out=runs/mlm-bert-tiny-1")[0] == 0


def write_streets():
    """Pictures and masks, of which one is too small."""
    for index in range(3):
        for folder, size in (("images", (24, 20)), ("masks", (12, 10) if index == 2 else (24, 20))):
            path = Path(f"streets/{folder}/{index}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", size, index).save(path)


# What a page says was done before.
BEFORE = {
    "docs/vision.md": write_pets,
    "docs/guide/huggingface.md": train_a_step,
    "docs/guide/segment.md": write_streets,
}


@pytest.mark.parametrize(("page", "shown"), RUN)
def test_it_prints_what_the_page_shows(page, shown, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    BEFORE.get(page, lambda: None)()
    module, *argv = shlex.split(shown.command.partition("python -m ")[2])
    if request.node.get_closest_marker("slow"):
        environment = os.environ | {"PYTHONPATH": str(pages.ROOT)}
        command = [sys.executable, "-m", module, *argv]
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr
    else:
        loaded = importlib.import_module(f"{module}.__main__" if module == "train" else module)
        printed = call(loaded.main, *argv)[2]
    assert pages.close(shown.output, printed), printed


def test_every_block_runs_or_says_why_not():
    marks = {block.mark for _, block, _ in SHOWN}
    assert all(re.fullmatch("|slow|long: .+", mark) for mark in marks), marks
    assert len(RUN) >= 6
    assert all(
        re.fullmatch("|slow|(?:long|not run): .+", mark) for path in pages.PAGES for mark, _, _ in pages.blocks(path)
    )
