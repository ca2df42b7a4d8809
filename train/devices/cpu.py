"""This machine: how many cores and how much memory a process may use, and how cores are kept awake."""

import contextlib
import ctypes
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jax import Device

# Options of glibc's mallopt that keep freed memory: large blocks are not mapped separately, the end of the heap is not
# trimmed, and the heaps of threads (64 MiB each) are not unmapped.
KEEP = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, -1), "M_TOP_PAD": (-2, 64 << 20)}

# Files of Linux control groups (version 1 and 2) with a quota and its period, both in microseconds of processor time.
QUOTAS = {"cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us"), "": ("cpu.max",)}

# Files of the same groups with the bytes of memory that they may have.
MEMORY = {"memory": ("memory.limit_in_bytes",), "": ("memory.max",)}

# Linux control groups, and the file that says in which ones this process is.
GROUPS, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def core_count() -> int:
    """The cores that this process may use: those of its affinity mask, or fewer if a container limits its time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cpu_quota(), cores)))


def cpu_quota(root: Path = GROUPS, membership: Path = MEMBERSHIP) -> float:
    """Seconds of processor time a second that control groups allow this process; infinity without a limit."""
    quotas = [(allowed, int(period)) for allowed, period in _limits(QUOTAS, root, membership)]
    return min((int(allowed) / period for allowed, period in quotas if allowed not in ("max", "-1")), default=math.inf)


def memory_bytes(root: Path = GROUPS, membership: Path = MEMBERSHIP) -> float:
    """Bytes of memory that this process may use: those of the machine, or fewer if a container limits them."""
    names = getattr(os, "sysconf_names", {})
    has_sizes = "SC_PHYS_PAGES" in names and "SC_PAGE_SIZE" in names
    machine = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) if has_sizes else math.inf
    limits = [float(limit) for (limit,) in _limits(MEMORY, root, membership) if limit != "max"]
    return min([machine, *limits])


def _limits(names: Mapping[str, Sequence[str]], root: Path, membership: Path) -> Iterator[list[str]]:
    """The words in those files, by controller, of every control group of this process and of the groups around it."""
    for line in membership.read_text().splitlines() if membership.exists() else ():
        _, controllers, path = line.split(":", 2)
        for controller in names.keys() & set(controllers.split(",")):
            group = root / controller / path.lstrip("/")
            for folder in (group, *group.parents):
                files = [folder / name for name in names[controller]]
                if all(file.exists() for file in files):
                    yield " ".join(file.read_text() for file in files).split()


def keep_memory():
    """Lets this process keep the memory that it frees, if its C library is glibc.

    XLA allocates the temporaries of a step at its start and frees them at its end. Large ones go back to the system,
    and the next step meets a page fault on every page (M20: 0.86 of a step). XLA's threads keep only allocations below
    64 MiB. Tried: M21.
    """
    with contextlib.suppress(AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in KEEP.values():
            mallopt(option, value)


@contextlib.contextmanager
def awake(devices: "Sequence[Device]", keep_awake: str = "auto") -> Iterator[None]:
    """Keeps the cores of a machine awake if `keeps_awake`: one waiting thread of the lowest priority for each device.

    Devices wait for each other once for each gradient that they add up. A virtual core that sleeps meanwhile goes back
    to its host, which takes its time to return it (M22: 0.74 of a step on a busy host). A waiting thread gives way to
    any other.
    """
    if not keeps_awake(devices, keep_awake):
        yield
        return
    libc = ctypes.CDLL(None)
    lock = ctypes.byref(ctypes.c_int())

    def wait():
        libc.pthread_spin_lock(lock)
        libc.pthread_spin_unlock(lock)

    libc.pthread_spin_init(lock, 0)
    libc.pthread_spin_lock(lock)
    threads = [threading.Thread(target=wait, daemon=True) for _ in devices]
    try:
        for thread in threads:
            thread.start()
            _set_priority(thread.native_id or 0, "SCHED_IDLE")
        yield
    finally:
        # On a busy machine a thread of the lowest priority does not come to its end, and its process waits for it.
        for thread in threads:
            _set_priority(thread.native_id or 0, "SCHED_OTHER")
        libc.pthread_spin_unlock(lock)
        for thread in threads:
            thread.join()


def keeps_awake(devices: "Sequence[Device]", keep_awake: str) -> bool:
    """Whether `awake` starts threads for these devices with `--cpu.keep-awake=auto|true|false`.

    Never on another platform than the CPU, and never where the system refuses the lowest priority. `auto`: on a virtual
    machine, unless a container limits processor time, for that counts the time of waiting threads.
    """
    if keep_awake == "false" or any(device.platform != "cpu" for device in devices):
        return False
    if keep_awake == "auto" and (not _is_virtual_machine() or cpu_quota() < math.inf):
        return False
    return _idle_priority_works()


def _idle_priority_works() -> bool:
    """Whether a thread of this process may take the lowest priority."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    works = _set_priority(thread.native_id or 0, "SCHED_IDLE")
    _set_priority(thread.native_id or 0, "SCHED_OTHER")
    end.set()
    thread.join()
    return works


def _set_priority(thread: int, policy: str) -> bool:
    """Gives a thread the lowest priority, `SCHED_IDLE`, or its usual one, `SCHED_OTHER`; False if the system refuses,
    or is not Linux."""
    with contextlib.suppress(OSError, AttributeError):
        value = getattr(os, policy)
        os.sched_setscheduler(thread, value, os.sched_param(0))
        return os.sched_getscheduler(thread) == value
    return False


def _is_virtual_machine() -> bool:
    """Whether this is a virtual machine of an x86 processor, under Linux."""
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and " hypervisor" in cpuinfo.read_text()
