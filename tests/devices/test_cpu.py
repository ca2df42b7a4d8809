"""The cores of a machine: their number, their memory, and what keeps them awake."""

import math
import os
import platform
import subprocess
import sys
import threading
import types
from pathlib import Path

import jax
import pytest

from train.devices import cpu


@pytest.fixture
def humble(monkeypatch):
    """A virtual machine without limits, and the number of threads of the lowest priority in it."""
    if not hasattr(os, "SCHED_IDLE"):
        pytest.skip("needs Linux")
    monkeypatch.setattr(cpu, "_is_virtual_machine", lambda: True)
    monkeypatch.setattr(cpu, "cpu_quota", lambda: math.inf)
    return lambda: [os.sched_getscheduler(thread.native_id) for thread in threading.enumerate()].count(os.SCHED_IDLE)


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {}, math.inf),
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "max 100000\n"}, 3),
        ("4:cpu,cpuacct:/\n0::/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ("4:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "50000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 0.5),
        ("4:cpu:/of/the/host\n", {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        ("4:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        (None, {}, math.inf),
    ],
)
def test_what_a_container_allows(own, files, expected, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    if own is not None:
        (tmp_path / "own").write_text(own)
    assert cpu.cpu_quota(tmp_path, tmp_path / "own") == expected


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/a\n", {"a/memory.max": "max\n", "memory.max": "5000\n"}, 5000),
        ("0::/a\n", {"a/memory.max": "4000\n", "memory.max": "5000\n"}, 4000),
        ("9:memory:/a\n", {"memory/a/memory.limit_in_bytes": "7000\n"}, 7000),
    ],
)
def test_memory_is_no_more_than_a_container_allows(own, files, expected, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(own)
    assert cpu.memory_bytes(tmp_path, tmp_path / "own") == expected
    assert cpu.memory_bytes(tmp_path, tmp_path / "nowhere") == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(("allowed", "expected"), [(math.inf, 8), (20, 8), (3, 3), (2.5, 3), (0.2, 1)])
def test_cores_are_no_more_than_a_container_allows(allowed, expected, monkeypatch):
    monkeypatch.setattr(cpu, "cpu_quota", lambda: allowed)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert cpu.core_count() == expected


def test_threads_wait_while_cores_are_to_be_awake(humble):
    def fail():
        with cpu.awake(jax.devices()[:2]):
            assert humble() == 2
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert humble() == 0


def test_threads_end_with_their_usual_priority(humble, monkeypatch):
    """On a busy machine one of the lowest priority would not come to its end."""
    policies, set_policy = {}, os.sched_setscheduler

    def recorded(thread, policy, parameters):
        set_policy(thread, policy, parameters)
        policies.setdefault(thread, []).append(policy)

    monkeypatch.setattr(os, "sched_setscheduler", recorded)
    with cpu.awake(jax.devices()[:2]):
        assert humble() == 2
    assert list(policies.values()) == 3 * [[os.SCHED_IDLE, os.SCHED_OTHER]]


def test_nothing_waits_where_time_is_limited_or_priority_is_refused(humble, monkeypatch):
    def refused(*arguments):
        raise PermissionError

    before = threading.active_count()
    monkeypatch.setattr(os, "sched_setscheduler", refused)
    with cpu.awake(jax.devices()[:2]):
        assert humble() == 0
    monkeypatch.undo()
    monkeypatch.setattr(cpu, "cpu_quota", lambda: 2.0)
    with cpu.awake(jax.devices()[:2]):
        assert threading.active_count() == before


@pytest.mark.parametrize(
    ("keep_awake", "virtual", "quota", "expected"),
    [
        ("auto", True, math.inf, True),
        ("auto", False, math.inf, False),
        ("auto", True, 2.0, False),
        ("true", False, 2.0, True),
        ("false", True, math.inf, False),
    ],
)
def test_when_cores_are_kept_awake(keep_awake, virtual, quota, expected, humble, monkeypatch):
    monkeypatch.setattr(cpu, "_is_virtual_machine", lambda: virtual)
    monkeypatch.setattr(cpu, "cpu_quota", lambda: quota)
    assert cpu.keeps_awake(jax.devices()[:2], keep_awake) == expected
    with cpu.awake(jax.devices()[:2], keep_awake):
        assert humble() == (2 if expected else 0)


@pytest.mark.parametrize("keep_awake", ["auto", "true", "false"])
def test_the_host_of_an_accelerator_sleeps(keep_awake, humble):
    devices = [types.SimpleNamespace(platform="gpu")] * 2
    with cpu.awake(devices, keep_awake):
        assert humble() == 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_memory_is_kept():
    """Memory that was freed is used again as it is: the system hands out no new pages for it."""
    program = """
import ctypes, resource
from train.devices.cpu import keep_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        place = libc.malloc(40 << 20)
        libc.memset(place, 1, 40 << 20)
        libc.free(place)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

many = faults()
keep_memory()
faults()
print(many, faults())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    many, few = map(int, done.stdout.split())
    assert few < many / 10
