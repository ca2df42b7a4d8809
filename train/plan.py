"""Plans a run without an accelerator: will it fit, how fast will it be, what to change.

`python -m train.plan --preset=NAME --topology=v5p:4x4x4`
"""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import dataclasses
import functools
import itertools
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tfm.options.choices import check_minimum
from train import UserError, exit_code
from train.devices import topology
from train.devices.specs import has_bfloat16
from train.devices.topology import Topology
from train.files.strict_json import json_text
from train.planning import advice
from train.planning.faults import LongRun
from train.planning.report import Report, long_run_rows, speed_rows, with_faults
from train.runs import run_folder
from train.screens.console import Log, human_bytes
from train.settings import flags
from train.settings.schema import Run
from train.tasks import phases, resolve

if TYPE_CHECKING:
    import numpy as np
    from jax import Device

    from train.training.job import Job

USAGE = """usage: python -m train.plan --topology=KIND:SHAPE [--tokens=N] [--preset=NAME] [--init=FOLDER]
                            [--section.field=value ...]

Compiles the training step of a run for devices of another machine, and says what it needs of them. Takes the flags of
train.main (see its --help). It reads data only of tasks whose texts share rows, for their lengths; otherwise the
vocabulary is --model.vocab, or what --tokenizer.vocab asks for.
KIND:SHAPE is v5p:4x4x8 (v4, v5e, v6e) or h100:8 (t4, l4, a100, h200). TPUs are planned exactly where libtpu is
installed (pip install -e ".[tpu-plan]"), all others with simulated CPU devices. Prints a table, and one JSON object on
stdout. Flags of its own, and their defaults:"""


@dataclasses.dataclass(frozen=True)
class PlanOptions:
    """What to plan for.

    topology: the devices: v5p:4x4x8, h100:8
    tokens: tokens to train on, for the days that this takes; by default those of --steps
    fault_rate: faults of a device in a year, for the best time between checkpoints and the days with faults
    save_rate: bytes of a checkpoint that are written, or read, in a second by all hosts together
    restart: seconds from a fault until training goes on, without the reading of a checkpoint
    simulate: plan with simulated CPU devices even if libtpu is installed
    compile: false: trace the step alone, in seconds; what devices send each other does not count then
    search: if the run does not fit, search for the nearest setting that fits
    """

    topology: str = ""
    tokens: int | None = None
    fault_rate: float | None = None
    save_rate: float = 1e9
    restart: float = 300.0
    simulate: bool = False
    compile: bool = True
    search: bool = True

    def __post_init__(self):
        check_minimum(self, tokens=1, fault_rate=1e-9, save_rate=1.0, restart=0.0)

    @property
    def long_run(self) -> LongRun:
        """What is said of days."""
        return LongRun(self.tokens, self.fault_rate, self.save_rate, self.restart)


# Settings that the search for one that fits compiles at most.
_MAX_COMPILATIONS = 3

# How sure each number is: with libtpu, without.
_CERTAINTY = {
    **dict.fromkeys(("parameters", "optimizer", "segments"), ("exact", "exact")),
    "padding": ("exact, of arrays to whole tiles", ""),
    **dict.fromkeys(("gradients", "activations"), ("estimated", "estimated")),
    "temporaries": ("the rest", "estimated"),
    "all": ("exact", "estimated"),
}


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(plan, argv)


def plan(argv):
    """Compiles the step and prints what it needs; if it does not fit, also the first setting that does."""
    if flags.print_help(PlanOptions, USAGE, argv):
        return
    own, rest = flags.split_argv(argv, [field.name for field in dataclasses.fields(PlanOptions)])
    options = flags.build(PlanOptions, flags.parse(own))
    planned = topology.parse(options.topology)
    run_argv = resolve.infer_task(rest, run_folder.run_values)
    run, explicit = resolve.resolve(run_argv, run_folder.resumed_values, run_folder.run_values)
    sizes = {} if "model.vocab" in explicit else {"vocab": run.task.vocab or run.tokenizer.vocab}
    scanned = explicit | {"model.scan"}  # traced and compiled once for all layers
    run = resolve.fill_from_data(run, scanned, sizes, planned.platform, has_bfloat16(planned.stand_ins[0]))
    devices, exact = topology.devices(planned, options.simulate) if options.compile else ([], False)

    from train.planning import estimate

    log = Log()
    run, text_sizes = estimate.text_sizes(run, scanned, planned.platform, log)
    planner = Planner(planned, devices, exact, options.long_run, log, text_sizes)
    reports = []
    for part in phases.step_ranges(run):
        reports.append((planner.examine(part.run), part))
        name = f", phase {part.phase}, steps {part.first + 1:,} to {part.stop:,}" if run.phases else ""
        planner.show(dataclasses.replace(part.run, steps=part.stop - part.first), reports[-1][0], name)
    report, costliest = max(reports, key=lambda pair: pair[0]["memory"]["all"])
    by_phase = (
        {"phases": [{"first": part.first, "stop": part.stop, **of} for of, part in reports]} if run.phases else {}
    )
    if not report["fits"] and options.search:
        report["instead"] = planner.search(costliest.run)
    print(json_text({"topology": planned.name, "exact": exact, **report, **by_phase}))


@dataclasses.dataclass(frozen=True)
class Planner:
    """Plans runs for one topology.

    devices: those for which programs are compiled in place of its own; empty: nothing is compiled
    exact: whether programs compiled for them are the real ones
    long_run: for how many tokens to tell the days, and how often devices fail
    text_sizes: tokens of the texts that lie in rows, by segmentation
    """

    topology: Topology
    devices: "Sequence[Device]"
    exact: bool
    long_run: LongRun
    log: Log
    text_sizes: "Sequence[np.ndarray]" = ()

    def job(self, run: Run) -> "Job":
        """The run on the devices of the topology. Raises UserError if it does not divide over them."""
        from train.data import row_plan
        from train.devices.mesh import mesh_for
        from train.runs.tuning import specs_of
        from train.tasks import table
        from train.training.job import Job

        task, devices, machine = table.task_of(run), self.devices if self.exact else self.stand_ins, self.topology
        layout = row_plan.plan(run, self.text_sizes, machine.size, machine.platform) if self.text_sizes else None
        return Job(run, task, mesh_for(run, specs_of(task, run), devices), layout)

    @functools.cached_property
    def stand_ins(self):
        """The devices of the topology as jax asks about them."""
        return self.topology.stand_ins

    def examine(self, run: Run) -> Report:
        """What a step of the run needs, sends and computes, and its time at best: the JSON object of the command."""
        from train.planning import counting, estimate, hlo
        from train.planning.memory import checkpoint_bytes, compiled_memory, forward_pass, step_memory
        from train.planning.traffic import memory_traffic, roofline
        from train.training.job import batch_tokens

        job = self.job(run)
        with topology.installed_cudnn(), estimate.model_errors():
            program = forward_pass(job)
            memory, traffic = step_memory(job, program=program), memory_traffic(job)
            report: Report = {
                "mesh": dict(job.mesh.shape),
                "tokens_a_step": batch_tokens(job),
                **({"texts": str(job.layout)} if job.layout else {}),
                "attention": counting.kernels_of(program),
                "flops": counting.model_flops(job),
                "flops_made": counting.hardware_flops(job),
                "estimated": memory["all"],
                "checkpoint": checkpoint_bytes(job),
            }
        try:
            compiled = self._compile(job) if self.devices else None
        except _OutOfMemoryError as error:
            return report | {"fits": False, "memory": memory, "refused": str(error)}
        if compiled and self.exact:
            memory = compiled_memory(compiled.memory_analysis(), memory, job)
        report["fits"] = self.exact or memory["all"] <= self.topology.spec.memory
        report["memory"] = memory
        report["collectives"] = {
            kind: {"number": traffic.count, "sent": traffic.sent}
            for kind, traffic in (hlo.collectives(compiled.as_text()) if compiled else {}).items()
        }
        report |= roofline(report, traffic, self.topology)
        return report | with_faults(report, self.long_run, self.topology.size)

    def _compile(self, job: "Job"):
        """The compiled step. Raises _OutOfMemoryError or UserError if the compiler refuses it."""
        import jax

        import tfm
        from train.training.job import compile_step

        if not self.exact:
            job = dataclasses.replace(job, mesh=tfm.make_mesh(**job.mesh.shape, devices=self.devices))
        try:
            with self.log.waiting(f"compiling the step for {self.topology.name}"):
                return compile_step(job)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" in str(error):
                raise _OutOfMemoryError(_refusal(str(error))) from error
            reason = str(error).splitlines()[0]
            raise UserError(f"the step cannot be compiled for {self.topology.name}: {reason}") from error

    def show(self, run: Run, report: Report, phase: str = ""):
        """Prints the numbers, and how sure each is."""
        refused = report.get("refused")
        parts = f" in {run.batch.accumulate} parts" if run.batch.accumulate > 1 else ""
        vocabulary = f"vocabulary {run.model.vocab:,}, " if run.model.input.array_shape is None else ""
        rows = {
            "devices": f"{self.topology.size} x {self.topology.kind}, "
            + ("compiled by libtpu" if self.exact else "simulated on CPU" if self.devices else "not compiled"),
            "mesh": " x ".join(f"{name} {size}" for name, size in report["mesh"].items()),
            "model": f"{run.model.dtype}, {vocabulary}remat {run.model.remat}",
            "batch": (report.get("texts") or f"{report['tokens_a_step']:,} tokens") + parts,
            "attention": "; ".join(report["attention"]) or "none",
            **self._memory_rows(report, exact=self.exact and not refused),
        }
        if refused:
            rows["compiler"] = refused
        else:
            rows |= speed_rows(report, self.long_run.tokens or run.steps * report["tokens_a_step"])
            rows |= long_run_rows(report, self.long_run, run)
        self.log.table(f"{run.task.name} {run.preset}{phase} on {self.topology.name}", rows)

    def _memory_rows(self, report: Report, exact: bool) -> dict[str, str]:
        """The bytes of a device by purpose, and how sure each number is."""
        column = 0 if exact else 1
        rows = {
            name: f"{human_bytes(size):>9} a device, {_CERTAINTY[name][column]}"
            for name, size in report["memory"].items()
            if name != "all" and size
        }
        capacity = self.topology.spec.memory
        verdict = "fits" if report["fits"] else "does not fit"
        certainty = _CERTAINTY["all"][column]
        rows["all"] = f"{human_bytes(report['memory']['all']):>9} of {human_bytes(capacity)}, {certainty}: it {verdict}"
        return rows

    def search(self, run: Run) -> str | None:
        """The flags of the first run that fits, by estimate and then by the compiler; None if there is none."""
        from train.planning.memory import step_memory

        def needs(candidate: Run) -> Mapping[str, float]:
            return step_memory(self.job(candidate))

        capacity = self.topology.spec.memory
        candidates = advice.first_that_fits(run, self.topology.size, needs, capacity)
        for candidate in itertools.islice(candidates, _MAX_COMPILATIONS):
            changed = advice.changed_flags(run, candidate)
            self.log.info(f"trying {changed}")
            report = self.examine(candidate)
            if report["fits"]:
                self.show(candidate, report)
                self.log.info(f"the first setting that fits: {changed}")
                return changed
        memory = needs(run)
        state = sum(memory[name] for name in ("parameters", "optimizer", "gradients"))
        devices = math.ceil(state * self.topology.size / capacity)
        larger = ", ".join(topology.larger(self.topology)[:2])
        self.log.info(
            f"no remat, accumulation or mesh fits; the state alone fills {devices} devices; "
            f"try {larger} or a smaller batch"
        )
        return None


class _OutOfMemoryError(Exception):
    """The compiler finds too little memory."""


def _refusal(message: str) -> str:
    """The compiler's message about memory, in short: the compiler needs 96.93G of 95.74G."""
    sizes = re.findall(r"\d+(?:\.\d+)?[GM]\b", message)
    return f"the compiler needs {sizes[0]} of {sizes[1]}" if len(sizes) > 1 else "the compiler finds too little memory"


if __name__ == "__main__":
    sys.exit(main())
