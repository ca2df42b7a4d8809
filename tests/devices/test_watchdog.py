"""Processes that watch one another: who is gone, and what the others say."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from train.devices.watchdog import START_AGAIN, Beat, Peers, Watchdog
from train.settings.distributed import Distributed

OPTIONS = Distributed(patience=30, stall=600)


def beats(count, *done, step=7):
    """Beats number `count` of processes that have done so much."""
    return {peer: Beat(count, steps, step, f"host{peer}", 100 + peer) for peer, steps in enumerate(done)}


def peers(process=1):
    subject = Peers(process, 3, OPTIONS, 0.0)
    subject.hear(beats(1, 5, 5, 5), 3.0)
    return subject


def test_nobody_is_gone():
    subject = peers()
    for n in range(2, 200):
        assert subject.verdict(3.0 * n) == ""
        subject.hear(beats(n, n, n, n), 3.0 * n)


def test_a_process_that_says_nothing_is_named():
    subject = peers()
    for n in range(2, 15):
        subject.hear(beats(n, n, n, n) | {2: beats(1, 5, 5, 5)[2]}, 3.0 * n)
        assert bool(subject.verdict(3.0 * n)) == (3.0 * n > 33)
    assert subject.verdict(42.0) == "process 2 (process id 102 on host2, after step 7) said nothing for 39 s"


def test_without_process_0_nobody_can_be_heard():
    assert peers().verdict(33.0) == ""
    assert peers().verdict(34.0) == "process 0 (process id 100 on host0, after step 7) said nothing for 31 s"


def test_who_misses_what_process_0_misses_names_it():
    """Where that has ended; else process 0 itself."""
    subject = peers()
    assert subject.after_coordinator(4.0).startswith("process 0 (process id 100 on host0, after step 7) ended, and the")
    for n in range(2, 10):
        subject.hear(beats(n, n, n, n) | {2: beats(1, 5, 5, 5)[2]}, 3.0 * n)
    assert subject.verdict(27.0) == ""
    assert subject.after_coordinator(27.0).startswith("process 2 (process id 102 on host2, after step 7) said nothing")


def test_process_0_hears_the_others_as_long_as_it_lives():
    assert peers(0).verdict(34.0).startswith("process 1 (process id 101 on host1, after step 7), process 2 (")


def test_a_process_that_has_ended_is_not_missed():
    subject = peers()
    subject.hear(beats(-1, 5, 5, 5), 4.0)
    assert subject.verdict(1000.0) == ""


def test_a_stall_is_named_after_the_first_step():
    for done, expected in ((5, "no process took a step for 603 s; behind is process 0 (process id 100"), (0, "")):
        subject = Peers(1, 3, OPTIONS, 0.0)
        for n in range(1, 203):
            subject.hear(beats(n, done, done + 1 if done else 0, done + 1 if done else 0), 3.0 * n)
        assert subject.verdict(606.0)[: len(expected) or None] == expected


class Client:
    """The coordination service of processes in one."""

    def __init__(self):
        self.values = {}

    def key_value_set(self, key, value, allow_overwrite):
        assert allow_overwrite
        self.values[key] = value

    def key_value_dir_get(self, folder):
        return [(key, value) for key, value in self.values.items() if key.startswith(folder)]


@pytest.mark.slow
@pytest.mark.parametrize("ends", [True, False])
def test_threads_notice_who_stops(ends, capfd):
    """Not one that has come to its end."""
    client, codes, noticed = Client(), [], threading.Event()

    def end(code):
        codes.append(code)
        noticed.set()

    options = Distributed(patience=1)
    first = Watchdog(client, 0, 2, options, end)
    second = Watchdog(client, 1, 2, options, end)
    second.moved(3)
    time.sleep(0.5)
    if ends:
        second.close()
    else:
        second._closed.set()
    noticed.wait(3 if ends else 30)
    first.close()
    err = capfd.readouterr().err
    assert codes == ([] if ends else [START_AGAIN])
    assert ("process 1 (process id" in err and "after step 3" in err and "start all again with --resume" in err) != ends


# A process of a cluster that does nothing but meet the others, every tenth of a second.
PROCESS = """
import sys, time
import jax, numpy
from jax.experimental import multihost_utils
from train.devices import distributed, watchdog
from train.settings.distributed import Distributed

jax.config.update("jax_platforms", "cpu")
port, process, processes, late = map(int, sys.argv[1:])
if process == processes - 1:
    time.sleep(late)
options = Distributed(f"localhost:{port}", processes, process, timeout=60, patience=8)
distributed.initialize(options)
with watchdog.watching(options):
    for step in range(1_000_000):
        multihost_utils.process_allgather(numpy.int32([step]))
        watchdog.moved(step)
        print(step, flush=True)
        time.sleep(0.1)
"""


def start(processes, late=0):
    """Those processes; the last one begins `late` seconds after the others."""
    with socket.socket() as server:
        server.bind(("localhost", 0))
        port = server.getsockname()[1]
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environ}
    argv = [sys.executable, "-c", PROCESS, str(port)]
    return [subprocess.Popen([*argv, str(n), str(processes), str(late)], **pipes) for n in range(processes)]


def wait_for_step(process, step=20):
    """Until it has met the others so often, and heard their beats. Gloo says something before."""
    lines = iter(process.stdout.readline, "")
    assert f"{step}\n" in lines, process.stderr.read()


@pytest.mark.slow
@pytest.mark.parametrize("gone", range(4))
@pytest.mark.parametrize("signum", [signal.SIGSTOP, signal.SIGKILL])
def test_each_of_four_is_named_by_all_that_are_left(signum, gone):
    """Within a minute. All end with the code that says to start again."""
    started = start(4)
    left = [process for index, process in enumerate(started) if index != gone]
    try:
        for process in started:
            wait_for_step(process)
        started[gone].send_signal(signum)
        began = time.monotonic()
        said = [process.communicate(timeout=60)[1] for process in left]
        assert time.monotonic() - began < 60
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in left] == [START_AGAIN] * 3, said
    for err in said:
        assert re.fullmatch(
            rf"error: process {gone} \(process id {started[gone].pid} on .*, after step \d+\) "
            r"(said nothing for \d+ s|ended, and the coordination service with it); "
            r"this is process \d after step \d+; start all again with --resume",
            err.splitlines()[-1],
        )


@pytest.mark.slow
def test_starts_may_be_uneven():
    """By a third of the time that is allowed."""
    started = start(2, late=20)
    try:
        for process in started:
            wait_for_step(process)
    finally:
        for process in started:
            process.kill()
