"""Options of several processes."""

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen


@frozen
class Distributed:
    """Several processes, each started with the same flags but its index.

    SLURM, torchrun, XPK, Open MPI 4 and TPU hosts say all of this themselves, or the variables
    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID do.

    coordinator: host:port of process 0 | auto: as JAX finds it
    processes: how many there are; none: as the environment says
    process: the index of this one, from 0; none: as the environment says
    timeout: seconds in which they must all have met
    patience: seconds without a sign of life after which a process counts as gone, and the others end
    stall: seconds in which one of them must have taken a step, after the first
    """

    coordinator: str = ""
    processes: int | None = None
    process: int | None = None
    timeout: int = 600
    patience: int = 30
    stall: int = 1800

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, processes=1, process=0, timeout=1, patience=1, stall=1)
        check_maximum(self, "no cluster is as large", processes=1 << 20, process=1 << 20)
        check_maximum(self, "a day is enough", timeout=86_400, patience=86_400, stall=86_400)
