"""The clock of a run, and its lines."""

import contextlib
import json

import pytest

from train.reporting.console import Log
from train.training import recorder


@pytest.fixture
def time(monkeypatch):
    """`time(seconds)` lets them pass."""
    now = [100.0]
    monkeypatch.setattr(recorder.time, "perf_counter", lambda: now[0])

    def passes(seconds):
        now[0] += seconds

    return passes


def test_seconds_per_step_without_pauses(time):
    clock = recorder.Clock()
    assert clock.left(10) == "?"
    for _ in range(4):
        time(2)
        clock.tick()
    with clock.pause():
        time(1000)
    assert clock.left(1800) == "1:00:00"
    assert clock.lap() == 2
    assert clock.lap() == 0
    for _ in range(3):
        time(4)
        clock.tick()
    assert clock.lap() == 4


def test_a_compiled_step_is_not_timed(time):
    """Neither the first one, nor one after a log line."""
    clock = recorder.Clock()
    time(500)
    clock.discard()
    time(2)
    clock.tick()
    assert clock.lap() == 2
    time(300)
    clock.discard()
    for _ in range(2):
        time(6)
        clock.tick()
    assert clock.lap() == 6
    assert clock.left(60) == "0:04:40", "14 s for 3 steps"


def test_lines_after_the_start_are_written_again(tmp_path):
    """As after a crash: the last line was cut short."""
    before = "".join(json.dumps({"step": step, "split": "train", "loss": 1.0}) + "\n" for step in (1, 2, 3))
    (tmp_path / "metrics.jsonl").write_text(before + '{"step": 4, "spl')
    with contextlib.closing(recorder.Recorder(Log(quiet=True), tmp_path, start=2, stop=4)) as record:
        record.write("train", 3, {"loss": 2.0})
    lines = [(line["step"], line["loss"]) for line in recorder.read_lines(tmp_path / "metrics.jsonl")]
    assert lines == [(1, 1.0), (2, 1.0), (3, 2.0)]
    assert (tmp_path / "plots" / "loss.png").exists()
