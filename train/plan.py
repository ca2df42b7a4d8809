"""Will it fit, how fast will it be, what to change: `python -m train.plan --preset=NAME --topology=v5p:4x4x4`, without an accelerator."""

import dataclasses
import itertools
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from train import UserError, exit_code
from train.costs import advice
from train.costs.advice import amount
from train.devices import topology
from train.runs import folder as folders
from train.settings import flags, resolve
from train.settings.schema import Run

USAGE = """usage: python -m train.plan --topology=KIND:SHAPE [--tokens=N] [--preset=NAME] [--init=FOLDER] [--section.field=value ...]

Compiles the training step of a run for devices that are not here, and says what it needs of them. Takes the flags of train.main (see
its --help) and reads no data: the vocabulary is --model.vocab, or what --tokenizer.vocab asks for. KIND:SHAPE is v5p:4x4x8 (v4, v5e,
v6e) or h100:8 (t4, l4, a100, h200). TPUs are planned exactly where libtpu is installed (pip install -e ".[tpu-plan]"), all others with
simulated CPU devices. Prints a table, and one JSON object on stdout. Flags of its own, and what they are by default:"""


@dataclasses.dataclass(frozen=True)
class Options:
    """What to plan for.

    topology: the devices: v5p:4x4x8, h100:8
    tokens: how many to train on, to tell the days that takes; 0 means as many as --steps have
    simulate: plan with simulated CPU devices even where libtpu is installed
    search: where it does not fit, look for the nearest setting that does
    """

    topology: str = ""
    tokens: int = 0
    simulate: bool = False
    search: bool = True

    def __post_init__(self):
        if self.tokens < 0:
            raise ValueError(f"tokens={self.tokens} must not be negative; 0 means as many as the steps have")


# Settings that are compiled, at most, in the search for one that fits.
_ATTEMPTS = 3

# How sure each number is: (with libtpu, without).
_SURE = {
    "parameters": ("exact", "exact"),
    "optimizer": ("exact", "exact"),
    "padding": ("exact, of arrays to whole tiles", ""),
    "gradients": ("estimated", "estimated"),
    "activations": ("estimated", "estimated"),
    "temporaries": ("the rest", "estimated"),
    "all": ("exact", "estimated"),
}


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(plan, argv)


def plan(argv):
    """Compiles the step and prints what it needs; where it does not fit, also the first setting that does."""
    known = flags.flags_of(Options, {})
    if {"--help", "-h"} & set(argv):
        print(flags.explain(USAGE, known, {}, {}))
        return
    own, others = flags.divide(argv, known)
    options = flags.build(Options, flags.parse(own, known, {}))
    place = topology.parse(options.topology)
    run, decided = resolve.resolve(resolve.with_task(others, folders.read), folders.saved_values, folders.read)
    sizes = {} if "model.vocab" in decided else {"vocab": run.tokenizer.vocab}
    run = resolve.settle(run, decided, sizes, place.platform)
    devices, exact = topology.devices(place, options.simulate)

    from train.reporting.console import Log

    planner = Planner(place, devices, exact, options.tokens, Log())
    found = planner.examine(run)
    planner.show(run, found)
    if not found["fits"] and options.search:
        found |= planner.search(run)
    print(json.dumps({"topology": place.name, "exact": exact, **found}))


@dataclasses.dataclass(frozen=True)
class Planner:
    """Where a run is to be: the topology, what stands for its devices, and whether that is as good as the devices."""

    place: topology.Topology
    devices: Sequence[Any]
    exact: bool
    tokens: int
    log: Any

    def job(self, run: Run):
        """The run on these devices. Raises UserError where it does not divide over them."""
        from train import tasks
        from train.costs import job as costs
        from train.devices import mesh as devices

        task = tasks.find(run.task.name)
        return costs.Job(run, task, devices.mesh_for(run, task.specs(run), self.devices))

    def examine(self, run: Run) -> dict[str, Any]:
        """All numbers of a run: what its step needs, sends and computes, and how long that takes at best."""
        import jax

        from train.costs import hlo

        job = self.job(run)
        memory, (model, made) = job.memory(), job.flops()
        found: dict[str, Any] = {
            "mesh": dict(job.mesh.shape),
            "tokens_a_step": job.tokens,
            "flops": model,
            "flops_made": made,
        }
        found["estimated"] = memory["all"]
        try:
            with self.log.waiting(f"compiling the step for {self.place.name}"):
                compiled = job.compile()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise UserError(
                    f"the step cannot be compiled for {self.place.name}: {str(error).splitlines()[0]}"
                ) from error
            return found | {"fits": False, "memory": memory, "refused": _refusal(str(error))}
        memory = _measured(memory, compiled.memory_analysis(), job) if self.exact else memory
        moved = {kind: dataclasses.asdict(traffic) for kind, traffic in hlo.collectives(compiled.as_text()).items()}
        found |= {
            "fits": self.exact or memory["all"] <= self.place.spec.memory,
            "memory": memory,
            "collectives": moved,
        }
        return found | _roofline(found, job.traffic(), self.place)

    def show(self, run: Run, found: Mapping[str, Any]):
        """Prints the numbers, and how sure each is."""
        by = "compiled by libtpu" if self.exact else "simulated on CPU"
        memory, sure = found["memory"], 0 if self.exact and "refused" not in found else 1
        verdict = "fits" if found["fits"] else "does not fit"
        rows = {
            "devices": f"{self.place.size} x {self.place.kind}, {by}",
            "mesh": " x ".join(f"{name} {size}" for name, size in found["mesh"].items()),
            "model": f"{run.model.dtype}, vocabulary {run.model.vocab:,}, remat {run.model.remat}",
            "batch": f"{found['tokens_a_step']:,} tokens"
            + (f" in {run.batch.accumulate} parts" if run.batch.accumulate > 1 else ""),
            **{
                name: f"{amount(size):>9} a device, {_SURE[name][sure]}"
                for name, size in memory.items()
                if name != "all" and size
            },
            "all": f"{amount(memory['all']):>9} of {amount(self.place.spec.memory)}, {_SURE['all'][sure]}: it {verdict}",
        }
        rows |= (
            {"compiler": found["refused"]}
            if "refused" in found
            else _speed(found, self.tokens or run.steps * found["tokens_a_step"])
        )
        self.log.table(f"{run.task.name} {run.preset} on {self.place.name}", rows)

    def search(self, run: Run) -> dict[str, Any]:
        """The flags of the first setting that fits, by estimate and then by the compiler, as `instead`; None where none does. Says it."""
        needs = lambda other: self.job(other).memory()
        near = advice.first_that_fits(run, self.place.size, needs, self.place.spec.memory)
        for other in itertools.islice(near, _ATTEMPTS):
            changes = advice.changes(run, other)
            self.log.info(f"trying {changes}")
            found = self.examine(other)
            if found["fits"]:
                self.show(other, found)
                self.log.info(f"the first setting that fits: {changes}")
                return {"instead": changes}
        state = sum(needs(run)[name] for name in ("parameters", "optimizer", "gradients"))
        least = math.ceil(state * self.place.size / self.place.spec.memory)
        bigger = ", ".join(topology.larger(self.place)[:2])
        self.log.info(
            f"no remat, accumulation or mesh fits; the state alone fills {least} devices; try {bigger} or a smaller batch"
        )
        return {"instead": None}


def _refusal(text: str) -> str:
    """What the compiler says of memory: 96.93G of 95.74G."""
    sizes = re.findall(r"\d+(?:\.\d+)?[GM]\b", text)
    return f"the compiler needs {sizes[0]} of {sizes[1]}" if len(sizes) > 1 else "the compiler finds too little memory"


def _measured(estimated: Mapping[str, float], compiled, job) -> dict[str, float]:
    """The memory that the compiled step needs on a device. What it needs beside its arguments is divided as it was estimated."""
    import jax

    from train.costs.counting import bytes_of

    exact = {name: estimated[name] for name in ("parameters", "optimizer")}
    batch = bytes_of(jax.tree.leaves(job.batch))
    rest = compiled.temp_size_in_bytes + compiled.output_size_in_bytes - compiled.alias_size_in_bytes
    padding = compiled.argument_size_in_bytes - sum(exact.values()) - batch
    gradients = min(rest, estimated["gradients"])
    activations = min(rest - gradients, estimated["activations"])
    divided = {
        "gradients": gradients,
        "activations": activations,
        "temporaries": batch + rest - gradients - activations,
    }
    return {"all": compiled.argument_size_in_bytes + rest, **exact, "padding": max(0, padding), **divided}


def _roofline(found: Mapping[str, Any], traffic: float, place: topology.Topology) -> dict[str, Any]:
    """Seconds of a step if products, memory and links were as fast as the data sheet says, and all at the same time."""
    device = place.spec
    seconds = {
        "products": found["flops_made"] / place.size / device.flops,
        "memory": traffic / device.bandwidth,
        "links": sum(each["sent"] for each in found["collectives"].values()) / device.link,
    }
    slowest = max(seconds.values())
    mfu = found["flops"] / place.size / device.flops / slowest
    return {"seconds": seconds, "seconds_a_step": slowest, "mfu": mfu, "tokens_per_s": found["tokens_a_step"] / slowest}


def _speed(found: Mapping[str, Any], budget: int) -> dict[str, str]:
    """What is sent and computed, how long that takes at best, and the days for so many tokens."""
    rows = {
        kind: f"{each['number']:,} a step, {amount(each['sent'])} sent by a device"
        for kind, each in found["collectives"].items()
    }
    seconds = ", ".join(f"{name} {1000 * value:,.1f}" for name, value in found["seconds"].items())
    again = f"; {found['flops_made']:.4g} with what is computed again" if found["flops_made"] > found["flops"] else ""
    days = budget / found["tokens_per_s"] / 86400
    return rows | {
        "operations": f"{found['flops']:.4g} a step{again}",
        "step": f"{1000 * found['seconds_a_step']:,.1f} ms at best, estimated from data sheets (ms: {seconds})",
        "speed": f"{found['tokens_per_s']:,.0f} tokens/s at best, MFU {found['mfu']:.2f}",
        "days": f"{days:,.2f} at best for {budget:,} tokens",
    }


if __name__ == "__main__":
    sys.exit(main())
