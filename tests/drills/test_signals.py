"""Ctrl-C and SIGTERM to whole runs, once and twice: while they compile, in the loop, while a checkpoint is saved."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small import FLAGS, read_lines, write_text

pytestmark = pytest.mark.slow

ENV = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}

# Longer than any of these drills. A checkpoint is nearly always being saved.
LONG = ["--task=mlm", *FLAGS, "--steps=1000000", "--log.every=1", "--eval.every=1000000", "--eval.batches=2"]
BUSY = ["--checkpoint.every=1", "--out=run"]
CALM = ["--checkpoint.every=1000000", "--out=run"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")


def start(words, log):
    command = [sys.executable, "-m", "train.main", *words]
    return subprocess.Popen(command, env=ENV, stdout=subprocess.DEVNULL, stderr=log.open("w"))


def wait_for(is_due, process, log):
    while not is_due(log.read_text()):
        assert process.poll() is None, log.read_text()
        time.sleep(0.002)


def table_is_shown(text):
    return re.search(r"^ *steps +1,000,000", text, re.MULTILINE)


def is_in_loop(text):
    return re.search(r"^train +20/", text, re.MULTILINE)


def is_saving(text):
    return is_in_loop(text) and any(Path("run/checkpoints").glob("*orbax-checkpoint-tmp*"))


MOMENTS = {
    "at the table": (CALM, table_is_shown, 0),
    "while the step compiles": (CALM, table_is_shown, 0.3),
    "in the loop": (CALM, is_in_loop, 0.1),
    "while a checkpoint is saved": (BUSY, is_saving, 0),
}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("signum", WORDS, ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_ends_and_goes_on(moment, signum, times, tmp_path):
    words, is_due, seconds = MOMENTS[moment]
    log = tmp_path / "log"
    process = start([*LONG, *words], log)
    wait_for(is_due, process, log)
    time.sleep(seconds)
    for _ in range(times):
        process.send_signal(signum)
        time.sleep(0.08)
    process.wait(timeout=60)
    err = log.read_text()
    assert process.returncode == 128 + signum, err
    assert err.splitlines()[-1] == WORDS[signum]
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    stopped = re.search(r"^stopped at step (\d+), saved in run; go on with", err, re.MULTILINE)
    if not moment.endswith(("table", "compiles")):
        assert stopped, err
    done = int(stopped[1]) if stopped else 0
    assert not list(Path("run").rglob("*.part"))
    again = tmp_path / "again"
    assert start(["--resume", "--out=run", f"--stop-at={done + 3}"], again).wait(timeout=120) == 0, again.read_text()
    assert (f"going on from step {done} of run" in again.read_text()) == bool(done)
    steps = [line["step"] for line in read_lines(Path("run/metrics.jsonl")) if line["split"] == "train"]
    assert steps == list(range(1, done + 4))
