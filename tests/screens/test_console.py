"""Waiting: what is shown while work of unknown length goes on."""

import io
import re
import threading
import time

import pytest
from rich.console import Console

from train.screens import console


def test_waiting_says_now_and_then_that_it_goes_on(capsys, monkeypatch):
    monkeypatch.setattr(console, "PATIENCE", 0.02)
    threads = threading.active_count()
    with console.Log().waiting("working"):
        time.sleep(0.2)
    first, *reminders = capsys.readouterr().err.splitlines()
    assert first == "working"
    assert reminders
    assert all(re.fullmatch(r"\.\.\. \d+ s so far", line) for line in reminders)
    time.sleep(0.05)
    assert capsys.readouterr().err == "", "it ends with the work"
    assert threading.active_count() == threads


def test_waiting_is_quiet_about_short_work(capsys):
    with console.Log().waiting("working"):
        pass
    assert capsys.readouterr().err == "working\n"


def test_waiting_ends_with_work_that_fails(monkeypatch):
    monkeypatch.setattr(console, "PATIENCE", 0.02)
    threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt), console.Log().waiting("working"):
        raise KeyboardInterrupt
    assert threading.active_count() == threads


def test_waiting_moves_on_a_terminal():
    shown = io.StringIO()
    log = console.Log()
    log.console = Console(file=shown, force_terminal=True)
    with log.waiting("working"):
        time.sleep(0.4)
    assert "working" in shown.getvalue()
    frames = set(re.findall("[\u2800-\u28ff]", shown.getvalue()))
    assert len(frames) > 1, "a spinner turns"
    assert "0:00:00" in shown.getvalue(), "the time it has taken"
