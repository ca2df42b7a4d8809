"""What a run will cost, for the start-up table and for the log lines; and advice if it runs out of memory."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

import tfm
from train import UserError
from train.devices.mesh import mesh_for
from train.devices.specs import memory_bytes, peak_flops
from train.planning import advice, counting
from train.planning.memory import forward_pass, step_memory
from train.runs.tuning import specs_of
from train.screens.console import Log, human_bytes
from train.settings.schema import Run
from train.tasks import resolve, table
from train.training import startup
from train.training.job import Job
from train.training.phases import PhaseJobs


class Estimate(NamedTuple):
    """What computes attention; bytes on a device by purpose; seconds of a step at the peak of all devices, if known."""

    kernels: list[str]
    memory: dict[str, float]
    peak_seconds: float | None

    def table(self) -> dict[str, str]:
        """Rows of the start-up table."""
        size = human_bytes(self.memory["all"])
        return {
            "attention": "; ".join(self.kernels) or "none",
            "memory": f"about {size} a device ({advice.breakdown(self.memory)})",
        }


def text_sizes(run: Run, explicit: set[str], platform: str, log: Log) -> tuple[Run, list[np.ndarray]]:
    """The tokens of the texts of a task whose texts lie in rows, once for each segmentation, and the run with what its
    data decide. Of another task, and where its data are not here, there are none."""
    if "rows" not in table.task_of(run).batch_spec(run):
        return run, []
    try:
        corpus = startup.read_corpus(run, None, log)
    except UserError as error:
        log.info(f"{error}; so each text counts as --batch.length={run.batch.length} tokens")
        return run, []
    sizes = [rows.sizes for rows in corpus.train]
    return resolve.fill_from_data(run, explicit | {"model.dtype"}, corpus.sizes, platform), sizes


def estimate(job: Job, batch) -> Estimate:
    """The costs of steps on batches like this one, which has fields [parts, rows, ...] and may be shapes.

    Raises UserError if the kernel of `--attention.kernel` or a variant of the model cannot do the task.
    """
    part = jax.tree.map(lambda field: field[0], dict(batch))
    with model_errors():
        program = forward_pass(job, part)
    peak = peak_flops(jax.devices()[0].device_kind) if job.run.model.dtype != "float32" else None
    peak_seconds = counting.model_flops(job, part) / (peak * job.mesh.size) if peak else None
    return Estimate(counting.kernels_of(program), step_memory(job, part, program), peak_seconds)


class PhaseCosts(NamedTuple):
    """Rows of the start-up table, the memory of the largest phase among them, and the peak seconds of each part."""

    rows: dict[str, str]
    peak_seconds: list[float | None]


def estimate_phases(phases: PhaseJobs) -> PhaseCosts:
    """The costs of the steps of a run. Raises UserError as `estimate` does."""
    costs = [estimate(phase.job, phase.batch(phase.steps.first)) for phase in phases.parts]
    largest = max(costs, key=lambda cost: cost.memory["all"])
    return PhaseCosts({**largest.table(), **phases.rows()}, [cost.peak_seconds for cost in costs])


@contextlib.contextmanager
def model_errors() -> Iterator[None]:
    """A UserError where a kernel or a variant of the model cannot do the task."""
    try:
        yield
    except tfm.KernelError as error:
        raise UserError(f"--attention.{error}") from error
    except tfm.VariantError as error:
        raise UserError(f"--model.mixer or --model.position: {error}") from error


def explain_oom(job: Job) -> contextlib.AbstractContextManager[None]:
    """A UserError with advice if XLA runs out of memory."""

    def needs(run):
        return step_memory(Job(run, job.task, mesh_for(run, specs_of(job.task, run))))

    return advice.explain_oom(
        lambda: advice.advise(job.run, job.mesh.size, needs, memory_bytes(jax.local_devices()[0]))
    )
