"""Whether a process is still there, also where its parent never waits for it."""

import os
import subprocess
import sys

from train.files.liveness import is_gone


def test_a_process_is_gone_when_it_has_ended():
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    assert not is_gone(process.pid)
    assert not is_gone(os.getpid())
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and its number is still taken
    assert is_gone(process.pid)
    process.wait()
    assert is_gone(process.pid)
