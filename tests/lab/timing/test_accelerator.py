"""The script that times models on an accelerator."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from train.lab.timing import accelerator

SCRIPT = Path(__file__).parents[3] / ".ci" / "accelerator"


@pytest.mark.slow
def test_tiny_models_on_a_cpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHON", sys.executable)
    done = subprocess.run([SCRIPT, tmp_path, "--smoke"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "accelerator.jsonl").read_text().splitlines()]
    assert [row["model"] for row in rows] == [name for name in accelerator.ROWS if not name.startswith("translating")]
    assert all("error" not in row and (row.get("ms_median") or row["ms_decode"]) > 0 for row in rows), rows
    table = (tmp_path / "accelerator.md").read_text().splitlines()
    assert len(table) == 2 + len(rows)
    assert len({line.count("|") for line in table}) == 1


def test_rows_are_chosen_by_parts_of_their_names():
    options = accelerator._options(["out", "--only=gpt2,t5-base", "--smoke", "--inputs=in"])
    assert [*accelerator._selected(options)] == [
        "gpt2, 1024",
        "gpt2-xl, 1024",
        "gpt2-dropout, 1024",
        *(f"writing-{batch}, gpt2 512 + 128" for batch in (1, 8, 64)),
        "t5-base, 512 to 128",
        "t5-base-dropout, 512 to 128",
    ]
    named = accelerator._options(["out", "--only=translating"])
    assert accelerator._selected(named) == {}, "without inputs"


def test_flags_of_a_row_name_the_inputs_and_count_steps_once():
    options = accelerator._options(["out", "--inputs=in"])
    command = accelerator._command(accelerator.ROWS["bert-base-texts"], True, options)
    assert f"--data={Path('in').absolute()}/texts.tsv" in command
    assert command[-1] == "--against=torch-compile"
    assert [word for word in command if "steps" in word] == ["--steps=128"]
    assert "--steps=20" in accelerator._command(accelerator.ROWS["vit-b, 224"], False, options)


def python(program):
    return [sys.executable, "-c", program]


@pytest.mark.slow
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
