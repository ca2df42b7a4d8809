"""The cores of this machine: how many a process may use, the memory that it keeps for them, and what keeps them awake."""

import contextlib
import ctypes
import math
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Options of glibc's mallopt, and what memory that is kept needs: no allocation of its own for what is large, nothing given back from the
# end of the heap, and no heap of a thread given up (they are of 64 MiB).
KEEP = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, -1), "M_TOP_PAD": (-2, 64 << 20)}

# Where control groups of Linux, of version 1 and 2, say how many microseconds of processor time they allow in how many.
QUOTAS = {"cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us"), "": ("cpu.max",)}


def number() -> int:
    """The cores that this process may use: those that it may run on, or fewer where a container limits its time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(limit(), cores)))


def limit(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """Seconds of processor time that control groups allow this process in a second; infinity where they allow any."""
    found = math.inf
    for line in own.read_text().splitlines() if own.exists() else ():
        _, kinds, path = line.split(":", 2)
        for kind in QUOTAS.keys() & set(kinds.split(",")):
            place = root / kind / path.lstrip("/")
            for folder in (place, *place.parents):
                files = [folder / name for name in QUOTAS[kind]]
                if all(file.exists() for file in files):
                    quota, period = " ".join(file.read_text() for file in files).split()
                    found = found if quota in ("max", "-1") else min(found, int(quota) / int(period))
    return found


def keep_memory():
    """Lets this process keep the memory that it frees, where its C library is glibc.

    XLA allocates the temporaries of a step at its start and frees them at its end. Large ones go back to the system,
    and the next step meets a page fault on every page (M20: 0.86 of a step). XLA's threads keep only allocations below
    64 MiB. Tried: M21.
    """
    with contextlib.suppress(AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in KEEP.values():
            mallopt(option, value)


@contextlib.contextmanager
def awake(devices: Sequence[Any]) -> Iterator[None]:
    """While this lasts, the cores of a virtual machine do not fall asleep: for each of these devices, a thread of lowest priority waits.

    Devices wait for each other once for each gradient that they add up. A virtual core that sleeps meanwhile goes back
    to its host, which takes its time to return it (M22: 0.74 of a step on a busy host).

    Such a thread gives way to any other, but what it takes counts where a container limits processor time: there it stays away.
    """
    wanted = sum(device.platform == "cpu" for device in devices)
    if not wanted or not _virtual() or limit() < math.inf:
        yield
        return
    libc, lock, threads = ctypes.CDLL(None), ctypes.byref(ctypes.c_int()), list[threading.Thread]()

    def wait():
        libc.pthread_spin_lock(lock)
        libc.pthread_spin_unlock(lock)

    libc.pthread_spin_init(lock, 0)
    libc.pthread_spin_lock(lock)
    try:
        while len(threads) < wanted:
            thread = threading.Thread(target=wait, daemon=True)
            thread.start()
            threads.append(thread)
            if not _humbled(thread.native_id or -1):
                libc.pthread_spin_unlock(lock)
                break
        yield
    finally:
        libc.pthread_spin_unlock(lock)
        for thread in threads:
            thread.join()


def _humbled(thread: int) -> bool:
    """Whether the system gives a thread the lowest priority, as asked."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        return os.sched_getscheduler(thread) == os.SCHED_IDLE
    return False


def _virtual() -> bool:
    """Whether this is a virtual machine of an x86 processor, under Linux."""
    flags = Path("/proc/cpuinfo")
    return flags.exists() and " hypervisor" in flags.read_text()
