"""Several processes that train one model together: how they find each other, and what they tell each other.

Every process runs the same command. It computes on its own devices, reads its own rows of each batch and decides what all the others
decide: how many batches there are, and of which rows, is a function of the configuration alone, so none runs out of data before another.
All write checkpoints; process 0 alone writes whatever else a run leaves behind. Where one process fails alone, JAX ends the others after
100 seconds; `--resume` goes on from the last checkpoint.
"""

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from train import UserError
from train.settings.schema import Distributed

# Launchers that JAX knows how to ask for the rest, by a variable that says how many processes they have started.
_LAUNCHERS: dict[str, Callable[[str], int]] = {
    "SLURM_STEP_NUM_TASKS": int,
    "OMPI_COMM_WORLD_SIZE": int,
    "TPU_WORKER_HOSTNAMES": lambda hosts: len(hosts.split(",")),
}


class Meeting(NamedTuple):
    """Where processes meet, how many they are, and which of them this one is; None is for JAX to find out."""

    coordinator: str | None
    processes: int | None
    process: int | None


def meeting(options: Distributed, environ: Mapping[str, str]) -> Meeting | None:
    """What flags, JAX's own variables or the launcher say; None where this process is alone. Raises UserError for half of it."""
    launched = max((count(environ[name]) for name, count in _LAUNCHERS.items() if environ.get(name)), default=1)
    coordinator = options.coordinator or environ.get("JAX_COORDINATOR_ADDRESS", "")
    processes = options.processes or int(environ.get("JAX_NUM_PROCESSES") or 0)
    process = options.process if options.process >= 0 else int(environ.get("JAX_PROCESS_ID") or -1)
    if coordinator == "auto" or (not coordinator and launched > 1):
        return Meeting(None, launched if launched > 1 else None, None)
    if not coordinator and not processes:
        return None
    host, colon, port = coordinator.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise UserError(f"--distributed.coordinator={coordinator} must be host:port of process 0, or auto")
    if launched > 1 and not processes:
        return Meeting(coordinator, launched, None)
    if not 0 <= process < processes:
        raise UserError(
            f"--distributed.process={process} must be the number of this process, from 0 to less than --distributed.processes={processes}"
        )
    return Meeting(coordinator, processes, process)


def join(options: Distributed) -> int:
    """Meets the other processes, if there are any, before a device is used; returns how many processes there are, as far as is known.

    Raises UserError where they do not all come within `options.timeout` seconds. JAX itself would end the process with a stack trace:
    it waits in a thread of its own, and longer.
    """
    found = meeting(options, os.environ)
    if found is None:
        return 1
    import jax

    failed: list[Exception] = []

    def meet():
        try:
            ask = None if None in found else "deactivate"  # or JAX would let a process of SLURM see one GPU only
            jax.distributed.initialize(
                *found, cluster_detection_method=ask, initialization_timeout=options.timeout + 30
            )
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=meet, daemon=True)
    thread.start()
    thread.join(options.timeout)
    where = (
        f"the coordinator at {found.coordinator}" if found.coordinator else "the coordinator that the launcher names"
    )
    if thread.is_alive():
        atexit.register(os._exit, 2)  # before JAX waits for the others to say goodbye
        raise UserError(
            f"not all of {found.processes or 'the'} processes met at {where} within {options.timeout} s; "
            "start them all, and let each reach that address"
        )
    if failed:
        raise UserError(f"{where} is of no use: {str(failed[0]).splitlines()[0]}") from failed[0]
    return found.processes or 1


def first() -> bool:
    """Whether this is process 0, which talks and writes."""
    import jax

    return jax.process_index() == 0


def own(folder: Path) -> Path:
    """Where this process writes what only one of them should: the folder, or elsewhere than in process 0 one that is thrown away."""
    return folder if first() else _scratch()


@functools.cache
def _scratch() -> Path:
    path = tempfile.mkdtemp(prefix="tfm-process-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


def told(decide: Callable[[], str]) -> str:
    """What process 0 decides, or its UserError, in all of them."""
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    if jax.process_count() == 1:
        return decide()
    message = ""
    if first():
        try:
            message = "=" + decide()
        except UserError as error:
            message = "!" + str(error)
    data = np.frombuffer(message.encode()[:4096].ljust(4096, b"\0"), np.uint8)
    heard = (
        bytes(np.asarray(multihost_utils.broadcast_one_to_all(data), np.uint8)).rstrip(b"\0").decode(errors="replace")
    )
    if heard.startswith("!"):
        raise UserError(heard[1:])
    return heard[1:]


def any_of(flag: bool) -> bool:
    """Whether something is true in at least one process."""
    return bool(_everywhere([flag]).any())


def alike(text: str) -> bool:
    """Whether a text is the same in all processes."""
    digests = _everywhere(list(hashlib.sha256(text.encode()).digest()))
    return bool((digests == digests[0]).all())


def _everywhere(numbers: list[int]) -> Any:
    """The numbers of each process, [processes, N]."""
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    mine = np.array(numbers, np.int32)
    if jax.process_count() == 1:
        return mine[None]
    return np.asarray(multihost_utils.process_allgather(mine))


def whole(array: Any) -> Any:
    """An array that is spread over the devices of all processes, as numpy has it."""
    import numpy as np

    return np.asarray(
        array if array.is_fully_addressable or array.is_fully_replicated else _gathered(array).addressable_data(0)
    )


def local(tree: Any) -> Any:
    """Arrays that are spread over all processes, each whole on the first device of every process; as they are where there is one process.

    What a process does with them is then its own business: texts are written by loops that ask devices now and then how far they are.
    """
    import jax

    if jax.process_count() == 1:
        return tree
    device = jax.local_devices()[0]
    return jax.tree.map(lambda x: jax.device_put(x.addressable_data(0), device), _gathered(tree))


def _gathered(tree: Any) -> Any:
    """Arrays, each whole on every device of its mesh."""
    import jax

    everywhere = lambda x: jax.sharding.reshard(x, jax.sharding.NamedSharding(jax.typeof(x).sharding.mesh, jax.P()))
    return jax.jit(lambda tree: jax.tree.map(everywhere, tree))(tree)
