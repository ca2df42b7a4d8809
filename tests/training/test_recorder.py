"""The clock of a run, and its lines."""

import contextlib
import json

import pytest

from train.runs.metrics_lines import MetricsFile, Written, read_lines
from train.screens.console import Log
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
    before = [json.dumps({"step": step, "split": "train", "loss": 1.0}) + "\n" for step in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text("".join(before) + '{"step": 4, "spl')
    written = Written()
    written.add("".join(before[:2]).encode())
    with contextlib.closing(recorder.Recorder(Log(quiet=True), tmp_path, 2, 4, written)) as record:
        record.write("train", 3, {"loss": 2.0})
    assert written.are((tmp_path / "metrics.jsonl").read_bytes())
    lines = [(line["step"], line["loss"]) for line in read_lines(tmp_path / "metrics.jsonl")]
    assert lines == [(1, 1.0), (2, 1.0), (3, 2.0)]
    assert (tmp_path / "plots" / "loss.png").exists()
    assert b"train/loss" in next((tmp_path / "tensorboard").iterdir()).read_bytes()


GOOD = '{"step": 1, "split": "train", "loss": 1.0}'


@pytest.mark.parametrize(
    ("lines", "kept", "sentence"),
    [
        ([GOOD, '{"ste'], [1], "metrics.jsonl, line 2 is damaged; it is left out"),
        (["7", GOOD], [1], "metrics.jsonl, line 1 is damaged"),
        ([GOOD, "{}", GOOD], [1, 1], "metrics.jsonl, line 2 is damaged"),
        ([GOOD, "\udcff\udcfe"], [1], "metrics.jsonl, line 2 is damaged"),
        ([GOOD, "[" * 100_000], [1], "metrics.jsonl, line 2 is damaged"),
        ([GOOD, "\0" * 64], [1], "metrics.jsonl, line 2 is damaged"),
        ([GOOD.replace("1.0", "9.0")], [1], "metrics.jsonl is not as the run wrote it: up to step 4"),
        ([], [], "metrics.jsonl is not as the run wrote it"),
    ],
)
def test_damaged_lines_are_named(tmp_path, lines, kept, sentence):
    """They are left out, whatever is in them, and those after them stay."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes("".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape"))
    messages, written = [], Written()
    written.add(f"{GOOD}\n{GOOD}\n".encode())
    with MetricsFile(path, 4, written, messages.append) as file:
        file.write({"step": 5, "split": "train", "loss": 2.0})
    assert [line["step"] for line in read_lines(path)] == [*kept, 5]
    assert len(messages) == 1
    assert sentence in messages[0]
    with MetricsFile(path, 5, written, messages.append):
        assert len(messages) == 1, "it is whole again"


def test_one_step_has_no_curve(tmp_path):
    """Nor the packages that would draw it."""
    with contextlib.closing(recorder.Recorder(Log(quiet=True), tmp_path, 0, 1, Written())) as record:
        record.write("train", 1, {"loss": 2.0, "rate": 0.1})
        record.write("eval", 1, {"loss": 2.0})
    assert not (tmp_path / "plots").exists()
