"""Follows a page of docs/library in a copy of the project: its blocks, where the page puts them."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from guide.pages import ROOT


class Step(NamedTuple):
    """A block of a page and where it goes.

    file: a new one, unless `relation` names a place in it
    relation: "at the end", "after the line" or "in place of the line"; or ""
    line: the line of the file that is meant
    """

    file: str
    relation: str
    line: str
    block: str


# `FILE`: / `FILE`, at the end: / `FILE`, after the line `LINE`: / `FILE`, in place of the line `LINE`:
_PLACE = r"(at the end|after the line|in place of the line)"
_STEP = re.compile(
    rf"^`([\w/.]+)`(?:, {_PLACE}(?: `([^`\n]+)`)?)?:\n\n```(?:python)?\n(.*?)^```\n", re.MULTILINE | re.DOTALL
)


def steps(page: Path) -> list[Step]:
    """What a page tells to write, in its order."""
    return [Step(*match) for match in _STEP.findall(page.read_text())]


def commands(page: Path) -> list[list[str]]:
    """The words of the commands of a page that stand in blocks of bash."""
    blocks = re.findall(r"^```bash\n(.*?)^```\n", page.read_text(), re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def copy_project(folder: Path) -> None:
    """The files of the project in a folder, as a repository of its own."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listing.splitlines():
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)


def follow(page: Path, folder: Path) -> None:
    """Writes what a page says into a copy of the project."""
    for file, relation, line, block in steps(page):
        path = folder / file
        if not relation:
            assert not path.exists(), f"{page.name} makes {file}, which is there"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block)
            continue
        text = path.read_text()
        if relation == "at the end":
            path.write_text(f"{text}\n\n{block}")
            continue
        before, after = text.split(f"\n{line}\n")  # the line stands there once
        kept = f"{line}\n" if relation == "after the line" else ""
        path.write_text(f"{before}\n{kept}{block}{after}")
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)


def call(folder: Path, *words: str) -> tuple[str, str]:
    """Stdout and stderr of a command of Python that ends well in a copy of the project."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "TFM_CACHE": str(folder / "cache")}
    result = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    return result.stdout, result.stderr
