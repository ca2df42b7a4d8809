"""Who is in the cluster of a process, as flags, JAX's own variables, or those of a launcher say."""

import importlib.util
import re
from collections.abc import Callable, Mapping
from typing import Annotated, NamedTuple

from tfm.options.choices import Range
from train import UserError
from train.settings.distributed import Distributed
from train.settings.gate import environment_number

Environ = Mapping[str, str]

_COUNT, _PORT = Annotated[int, Range(0, 1 << 20)], Annotated[int, Range(0, 65_534)]

# Variables that hold one entry for each host of a TPU slice, and the number of slices. JAX reads the rest.
_TPU_HOSTS, _TPU_SLICES = ("TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES"), "MEGASCALE_NUM_SLICES"

# Ports that no service has, one for each job of SLURM.
_FIRST_PORT, _PORTS = 61_440, 4096


class Cluster(NamedTuple):
    """The address of the coordinator, the number of processes, and the index of this one; JAX finds out what is None.

    local_devices: the GPUs of the host that are those of this process; None: all that it sees
    """

    coordinator: str | None
    processes: int | None
    process: int | None
    local_devices: tuple[int, ...] | None = None


class Launcher(NamedTuple):
    """What starts the processes, and the variables in which it says so.

    mark: the variable that shows that it is here
    processes, process: how many there are, and the number of this one
    local_process: that of this one on its host
    local_count: environment -> the processes on this host
    address: environment -> host:port for process 0 to listen at; "" where the launcher does not say it
    """

    name: str
    mark: str
    processes: str
    process: str
    local_process: str
    local_count: Callable[[Environ], int]
    address: Callable[[Environ], str]

    def is_here(self, environ: Environ) -> bool:
        """Whether it started several processes."""
        return bool(environ.get(self.mark)) and (_number(environ, self.processes) or 1) > 1


def find_cluster(options: Distributed, environ: Environ) -> Cluster | None:
    """The cluster that flags, JAX's own variables or the launcher name; None for a single process.

    Raises UserError if only a part of it is set.
    """
    launcher = next((launcher for launcher in LAUNCHERS if launcher.is_here(environ)), None)
    coordinator = options.coordinator or environ.get("JAX_COORDINATOR_ADDRESS", "")
    processes, process = (
        _first(flag, _number(environ, name), launcher and _number(environ, variable))
        for flag, name, variable in (
            (options.processes, "JAX_NUM_PROCESSES", launcher.processes if launcher else ""),
            (options.process, "JAX_PROCESS_ID", launcher.process if launcher else ""),
        )
    )
    if options.processes == 1 and not options.coordinator:
        return None
    local_devices = _local_devices(launcher, environ) if launcher else None
    if not coordinator and launcher:
        coordinator = launcher.address(environ)
        if not coordinator:
            raise UserError(
                f"{launcher.name} started {processes} processes and does not say where they meet; add "
                "--distributed.coordinator=HOST:PORT, the host of process 0 and a free port"
            )
    if coordinator == "auto" or (not coordinator and not processes and _jax_finds_it(environ)):
        return Cluster(None, processes or _tpu_processes(environ), None, local_devices)
    if not coordinator and (processes or 1) == 1:
        return None
    host, colon, port = coordinator.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise UserError(f"--distributed.coordinator={coordinator} must be host:port of process 0, or auto")
    if processes is None or process is None or not 0 <= process < processes:
        raise UserError(
            f"--distributed.process={'none' if process is None else process} must be the number of this process, "
            f"from 0 to less than --distributed.processes={'none' if processes is None else processes}"
        )
    return Cluster(coordinator, processes, process, local_devices)


def _jax_finds_it(environ: Environ) -> bool:
    """Whether several processes train that JAX itself can count. Raises UserError for a pod that may be one of many."""
    if (_tpu_processes(environ) or 1) > 1:
        return True
    pod = environ.get("JOB_COMPLETION_INDEX", "")
    if not (pod and environ.get("KUBERNETES_SERVICE_HOST")):
        return False
    if importlib.util.find_spec("kubernetes"):
        return True
    raise UserError(
        f"this is pod {pod} of a job of Kubernetes, which does not say how many there are; pip install kubernetes, or "
        "add --distributed.processes=1 if it trains alone, else --distributed.coordinator= and .process= too"
    )


def _tpu_processes(environ: Environ) -> int | None:
    """The hosts of all slices of a TPU; None where there is one."""
    hosts = max(len(environ.get(name, "").split(",")) for name in _TPU_HOSTS)
    count = hosts * (_number(environ, _TPU_SLICES) or 1)
    return count if count > 1 else None


def _local_devices(launcher: Launcher, environ: Environ) -> tuple[int, ...] | None:
    """The GPUs of a process: its share of those that the processes of a host see, all where it is alone there."""
    count, index = launcher.local_count(environ), _number(environ, launcher.local_process) or 0
    if count < 2:
        return None
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    gpus = len(visible.split(",")) if visible else _number(environ, "SLURM_GPUS_ON_NODE") or count
    share = gpus // count
    return tuple(range(index * share, (index + 1) * share)) or None  # each sees its own where there are fewer


def _slurm_address(environ: Environ) -> str:
    """The first host of node[001-003,7],other, and a port that follows from the numbers of job and step."""
    host = re.match(r"([^\[,]+)(?:\[([^\],-]+))?", environ.get("SLURM_STEP_NODELIST", ""))
    job, step = (_number(environ, name) or 0 for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return f"{host[1]}{host[2] or ''}:{_FIRST_PORT + (job + step) % _PORTS}" if host else ""


def _slurm_tasks(environ: Environ) -> int:
    """The processes on this host, of 8(x2),4: eight on two hosts, four on the third."""
    counts: list[int] = []
    for count, hosts in re.findall(r"(\d+)(?:\(x(\d+)\))?", environ.get("SLURM_STEP_TASKS_PER_NODE", "")):
        counts += [int(count)] * int(hosts or 1)
    host = _number(environ, "SLURM_NODEID") or 0
    return counts[host] if host < len(counts) else 1


def _torchrun_address(environ: Environ) -> str:
    """The port behind the one where torchrun itself listens."""
    host, port = environ.get("MASTER_ADDR", ""), environment_number(environ, "MASTER_PORT", _PORT)
    return f"{host}:{port + 1}" if host and port else ""


def _xpk_address(environ: Environ) -> str:
    host, port = environ.get("JAX_COORDINATOR_IP", ""), environ.get("JAX_COORDINATOR_PORT", "")
    return f"{host}:{port}" if host and port else ""


def _mpi_address(environ: Environ) -> str:
    """JAX reads the address of Open MPI 4; that of version 5 is in no variable."""
    return "auto" if environ.get("OMPI_MCA_orte_hnp_uri") else ""


def _counted(name: str) -> Callable[[Environ], int]:
    return lambda environ: _number(environ, name) or 1


# The first that is here counts: srun may start torchrun, and both set variables of MPI.
LAUNCHERS = (
    Launcher(
        name="torchrun",
        mark="MASTER_ADDR",
        processes="WORLD_SIZE",
        process="RANK",
        local_process="LOCAL_RANK",
        local_count=_counted("LOCAL_WORLD_SIZE"),
        address=_torchrun_address,
    ),
    Launcher(
        name="XPK",
        mark="JAX_COORDINATOR_IP",
        processes="NNODES",
        process="NODE_RANK",
        local_process="",
        local_count=lambda environ: 1,
        address=_xpk_address,
    ),
    Launcher(
        name="SLURM",
        mark="SLURM_STEP_NUM_TASKS",
        processes="SLURM_STEP_NUM_TASKS",
        process="SLURM_PROCID",
        local_process="SLURM_LOCALID",
        local_count=_slurm_tasks,
        address=_slurm_address,
    ),
    Launcher(
        name="Open MPI",
        mark="OMPI_COMM_WORLD_SIZE",
        processes="OMPI_COMM_WORLD_SIZE",
        process="OMPI_COMM_WORLD_RANK",
        local_process="OMPI_COMM_WORLD_LOCAL_RANK",
        local_count=_counted("OMPI_COMM_WORLD_LOCAL_SIZE"),
        address=_mpi_address,
    ),
    Launcher(
        name="MPI",
        mark="PMI_SIZE",
        processes="PMI_SIZE",
        process="PMI_RANK",
        local_process="MPI_LOCALRANKID",
        local_count=_counted("MPI_LOCALNRANKS"),
        address=lambda environ: "",
    ),
)


def _number(environ: Environ, name: str) -> int | None:
    """The count or the index in a variable; None where it is not set."""
    return environment_number(environ, name, _COUNT) if name else None


def _first(*values: int | None) -> int | None:
    """The first of these that is set."""
    return next((value for value in values if value is not None), None)
