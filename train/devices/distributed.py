"""Several processes that train one model together: how they find each other, and what they exchange.

Every process runs the same command. It computes on its own devices and reads its own rows of each batch. The number of
batches and their rows are a function of the configuration alone, so no process runs out of data before another. All
write checkpoints; process 0 alone writes the other files of a run. If a process is gone, the others say so and end
(`watchdog.py`); `--resume` continues from the last checkpoint.
"""

import atexit
import functools
import hashlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from train import UserError
from train.devices.cluster import find_cluster
from train.settings.distributed import Distributed

if TYPE_CHECKING:
    import numpy as np
    from jax import Array

    from tfm.params import PyTree


def initialize(options: Distributed) -> int:
    """Connects to the other processes, before a device is used; returns the number of processes, as far as is known.

    Raises UserError if they do not all come within `options.timeout` seconds. JAX itself would end the process with a
    stack trace: it waits in a thread of its own, and longer.
    """
    cluster = find_cluster(options, os.environ)
    if cluster is None:
        return 1
    import jax

    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM from train.interruption
    errors: list[Exception] = []

    def connect():
        detection = "deactivate" if cluster.coordinator else None
        waiting = options.timeout + 30
        try:
            jax.distributed.initialize(*cluster, cluster_detection_method=detection, initialization_timeout=waiting)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    address = f"at {cluster.coordinator}" if cluster.coordinator else "that the launcher names"
    _join(thread, options.timeout, f"waiting for the other processes at the coordinator {address}")
    if thread.is_alive():
        atexit.register(os._exit, 2)  # else JAX waits for the other processes at exit
        raise UserError(
            f"not all of {cluster.processes or 'the'} processes met at the coordinator {address} within "
            f"{options.timeout} s; start them all, let each reach that address, or say --distributed.timeout=SECONDS"
        )
    if errors:
        reason = str(errors[0]).splitlines()[0]
        raise UserError(f"the coordinator {address} cannot be used: {reason}") from errors[0]
    return cluster.processes or 1


def _join(thread: threading.Thread, timeout: float, waiting: str, every: float = 30):
    """Waits at most `timeout` seconds for a thread; every `every` seconds stderr says so."""
    waited = 0.0
    while thread.is_alive() and waited < timeout:
        pause = min(every, timeout - waited)
        thread.join(pause)
        waited += pause
        if thread.is_alive() and waited < timeout:
            print(f"{waiting}: {waited:.0f} s of {timeout:.0f}", file=sys.stderr)


def is_main() -> bool:
    """Whether this is process 0, which prints and writes."""
    import jax

    return jax.process_index() == 0


def output_dir(folder: Path) -> Path:
    """The folder for files that only process 0 writes; a temporary one in the other processes."""
    return folder if is_main() else _temporary_dir()


@functools.cache
def _temporary_dir() -> Path:
    path = tempfile.mkdtemp(prefix="tfm-process-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


def broadcast_from_main(decide: Callable[[], str]) -> str:
    """The text (at most 4 KB) that process 0 decides, in all processes; its UserError is raised in all of them."""
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    if jax.process_count() == 1:
        return decide()
    message = ""
    if is_main():
        try:
            message = "=" + decide()
        except UserError as error:
            message = "!" + str(error)
    sent = np.frombuffer(message.encode()[:4096].ljust(4096, b"\0"), np.uint8)
    received = bytes(np.asarray(multihost_utils.broadcast_one_to_all(sent), np.uint8))
    message = received.rstrip(b"\0").decode(errors="replace")
    if message.startswith("!"):
        raise UserError(message[1:])
    return message[1:]


def any_process(flag: bool) -> bool:
    """Whether the flag is true in at least one process."""
    return bool(largest(flag))


def largest(value: int) -> int:
    """The largest value of all processes."""
    return int(_all_gather([value]).max())


def all_equal(text: str) -> bool:
    """Whether the text is the same in all processes."""
    digests = _all_gather(list(hashlib.sha256(text.encode()).digest()))
    return bool((digests == digests[0]).all())


def _all_gather(numbers: list[int]) -> "np.ndarray":
    """N numbers of this process -> those of every process, int32 [processes, N]."""
    import jax
    import numpy as np

    array = np.array(numbers, np.int32)
    if jax.process_count() == 1:
        return array[None]
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array))


def to_host(array: "Array") -> "np.ndarray":
    """An array that is sharded over the devices of all processes -> a numpy array of all of it, in every process."""
    import numpy as np

    addressable = array.is_fully_addressable or array.is_fully_replicated
    return np.asarray(array if addressable else _replicated(array).addressable_data(0))


def to_local_device(tree: "PyTree") -> "PyTree":
    """Arrays that are sharded over all processes -> whole arrays on the first device of every process.

    Each process can then compute with them alone, without the others: generation is a loop that waits for its devices.
    With one process, the arrays stay as they are.
    """
    import jax

    if jax.process_count() == 1:
        return tree
    device = jax.local_devices()[0]
    return jax.tree.map(lambda x: jax.device_put(x.addressable_data(0), device), _replicated(tree))


def _replicated(tree: "PyTree") -> "PyTree":
    """The arrays of a tree, replicated on every device of their meshes."""
    import jax

    def replicate(x):
        return jax.sharding.reshard(x, jax.sharding.NamedSharding(jax.typeof(x).sharding.mesh, jax.P()))

    return jax.jit(lambda tree: jax.tree.map(replicate, tree))(tree)
