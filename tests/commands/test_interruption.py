"""Ctrl-C and SIGTERM end a command, wherever they come."""

import ast
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small import call

import train
from train import exit_code, interruption

SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


def command(function):
    """A command that runs a function."""
    return lambda argv: exit_code(lambda _: function(), argv)


@pytest.mark.parametrize(("signum", "word"), SIGNALS.items())
@pytest.mark.parametrize("times", [1, 2])
def test_a_command_ends_with_one_word(signum, word, times):
    cleaned = []

    def work():
        try:
            signal.raise_signal(signum)
        finally:
            if times > 1:
                signal.raise_signal(signum)
            cleaned.append(True)

    handler = signal.getsignal(signum)
    assert call(command(work)) == (128 + signum, "", f"{word}\n")
    assert cleaned, "the second signal does not disturb the end"
    assert signal.getsignal(signum) is handler
    assert call(command(lambda: None)) == (0, "", "")
    assert interruption.received() == 0


@pytest.mark.parametrize("signum", SIGNALS)
def test_signals_wait_where_there_is_something_to_save(signum):
    done = []

    def work():
        with interruption.Deferral() as deferral:
            deferral.begin()
            signal.raise_signal(signum)
            signal.raise_signal(signum)
            done.append(interruption.received())
            try:
                with deferral.suspended():
                    done.append("not reached")
            except interruption.Interrupted:
                done.append("cut off")

    assert call(command(work))[0] == 128 + signum
    assert done == [signum, "cut off"]


def test_work_is_cut_off_while_the_deferral_is_suspended():
    saved = []

    def work():
        with interruption.Deferral() as deferral:
            deferral.begin()
            try:
                with deferral.suspended():
                    signal.raise_signal(signal.SIGINT)
                    saved.append("not reached")
            except interruption.Interrupted:
                signal.raise_signal(signal.SIGINT)
                saved.append("saved")

    assert call(command(work))[0] == 130
    assert saved == ["saved"]


def test_a_signal_that_is_swallowed_comes_again():
    def swallow(phase, info):
        if not interruption.received():
            signal.raise_signal(signal.SIGINT)

    def work():
        gc.callbacks.append(swallow)
        try:
            gc.collect()
        finally:
            gc.callbacks.remove(swallow)
        time.sleep(20)

    began = time.monotonic()
    code, _, err = call(command(work))
    assert code == 130
    assert "Traceback" not in err
    assert time.monotonic() - began < 10


def started(program, marker="ready"):
    """A process that runs a program, once it has printed the marker."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, *program], env=env, text=True, **pipes)
    while marker and marker not in process.stdout.readline():
        pass
    return process


STUCK = """
import hashlib, sys
from train import exit_code, interruption
interruption.PATIENCE = 0.3
def work(argv):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 10**9)  # an hour without a look at signals
sys.exit(exit_code(work, []))
"""


@pytest.mark.parametrize("signum", SIGNALS)
def test_compiled_code_does_not_hold_it_up(signum):
    process = started(["-c", STUCK])
    process.send_signal(signum)
    assert process.communicate(timeout=60) == ("", f"{SIGNALS[signum]}\n")
    assert process.returncode == 128 + signum


WAITING = """
import sys, time
from train import exit_code, interruption
def work(argv):
    with interruption.Deferral() as deferral:
        deferral.begin()
        print("ready", flush=True)
        for _ in range(400):
            time.sleep(0.05)
sys.exit(exit_code(work, []))
"""


@pytest.mark.slow
def test_the_third_signal_ends_what_waits():
    process = started(["-c", WAITING])
    for _ in range(3):
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    assert process.communicate(timeout=10)[1] == "terminated\n"
    assert process.returncode == 143


IMPORTING = """
import signal, sys
sys.argv[0] = "-m"
before = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
import train, train.main, train.generate
print(before == [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)])
"""


def test_an_import_handles_no_signals():
    """Not even that of `python -m`, where `sys.argv` begins with -m as long as the package is imported."""
    process = started(["-c", IMPORTING], marker=None)
    assert process.communicate(timeout=60) == ("True\n", "")


def test_commands_handle_signals_before_their_imports():
    sources = [path.read_text() for path in Path(train.__file__).parent.rglob("*.py")]
    commands = [source for source in sources if '\nif __name__ == "__main__":' in source]
    assert len(commands) > 15
    for source in commands:
        docstring, first, second, *_ = map(ast.unparse, ast.parse(source).body)
        assert first == "from train import interruption", docstring
        assert second == "if __name__ == '__main__':\n    interruption.install()", docstring


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("signum", "word"), SIGNALS.items())
def test_a_run_that_has_just_begun(signum, word, seconds, times, tmp_path):
    """As soon as the package is imported and the command has begun with its imports, which -X importtime tells."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    program = ["-X", "importtime", "-m", "train.main", "--task=mlm", f"--out={tmp_path / 'a'}"]
    process = subprocess.Popen([sys.executable, *program], env=env, stderr=subprocess.PIPE, text=True)
    imported = (line.rstrip().rpartition("| ")[2] for line in process.stderr)
    assert "train" in imported
    next(imported)
    time.sleep(seconds)
    for _ in range(times):
        process.send_signal(signum)
        time.sleep(0.08)
    rest = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + signum
    assert rest.splitlines()[-1] == word
    assert "Traceback" not in rest
