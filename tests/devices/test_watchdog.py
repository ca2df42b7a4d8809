"""Processes that watch one another: who is gone, and what the others say."""

import threading
import time

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
