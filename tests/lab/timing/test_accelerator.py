"""The script that times models on an accelerator."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from train.lab.timing import accelerator

SCRIPT = Path(__file__).parents[2] / ".ci" / "accelerator"


@pytest.mark.slow
def test_tiny_models_on_a_cpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHON", sys.executable)
    done = subprocess.run([SCRIPT, tmp_path, "--smoke"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "accelerator.jsonl").read_text().splitlines()]
    assert [row["model"] for row in rows] == [*accelerator.MODELS]
    assert all("error" not in row and row["ms_median"] > 0 for row in rows), rows
    table = (tmp_path / "accelerator.md").read_text().splitlines()
    assert len(table) == 2 + len(rows)
    assert len({line.count("|") for line in table}) == 1


def python(program):
    return [sys.executable, "-c", program]


@pytest.mark.parametrize(
    ("program", "limit", "says"),
    [
        ("import time; time.sleep(60)", 2, "takes more than the 2 s"),
        ("raise SystemExit('RESOURCE_EXHAUSTED: 90 GB')", 60, "does not fit into the memory"),
        ("raise ValueError('strange')", 60, "failed: ValueError: strange"),
        ("print(1)", 0, "no time is left"),
    ],
)
def test_what_cannot_be_timed_is_a_sentence(program, limit, says):
    assert says in accelerator._measure(python(program), limit, "error")["error"]


def test_a_row_is_what_the_command_prints_last(tmp_path):
    row = {"model": "a"} | accelerator._measure(python("print('words'); print('{\"mfu\": 0.5}')"), 60, "error")
    assert row == {"model": "a", "mfu": 0.5}
    accelerator._write(tmp_path, [row, {"model": "b"}, {"model": "c", "error": "skipped: too large"}])
    lines = (tmp_path / "accelerator.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| a", "| c"]
    assert "0.5" in lines[2]
    assert "skipped: too large" in lines[3]
