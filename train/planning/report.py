"""The JSON object of `train.plan`, and rows of its table."""

import math
from typing import TypedDict

from train.planning.faults import Faults, LongRun
from train.screens.console import human_bytes
from train.settings.schema import Run


class FaultReport(TypedDict):
    """Faults of devices: seconds between them; seconds and steps between checkpoints that are best; how many times as
    long the run takes, None where it never ends."""

    seconds_between: float
    interval_seconds: float
    interval_steps: int
    slowdown: float | None


class Report(TypedDict, total=False):
    """What a step needs, sends and computes.

    mesh: sizes of its axes
    tokens_a_step: positions of a batch
    texts: how the texts of a batch lie in rows, where they do
    attention: the kernels and the reasons for them
    flops, flops_made: operations of the model, and with what is recomputed
    estimated: bytes of a device, without the compiler
    checkpoint: bytes of a checkpoint
    fits: whether the memory of a device suffices
    memory: bytes of a device by purpose, and "all"
    refused: why the compiler refuses the step
    collectives: by kind: how often they run, and the bytes that a device sends
    seconds: of products, memory and links at the peaks of the data sheets
    seconds_a_step: the largest of them
    mfu, tokens_per_s: at these seconds
    faults: what faults of devices cost, where it is said how many there are
    instead: flags of the first run that fits; None where none does
    """

    mesh: dict[str, int]
    tokens_a_step: int
    texts: str
    attention: list[str]
    flops: int
    flops_made: int
    estimated: float
    checkpoint: int
    fits: bool
    memory: dict[str, float]
    refused: str
    collectives: dict[str, dict[str, float]]
    seconds: dict[str, float]
    seconds_a_step: float
    mfu: float
    tokens_per_s: float
    faults: FaultReport
    instead: str | None


def speed_rows(report: Report, tokens: int) -> dict[str, str]:
    """What a step sends and computes, its time at best, and the days for `tokens`."""
    rows = {
        kind: f"{collective['number']:,} a step, {human_bytes(collective['sent'])} sent by a device"
        for kind, collective in report["collectives"].items()
    }
    operations = f"{report['flops']:.4g} a step"
    if report["flops_made"] > report["flops"]:
        operations += f"; {report['flops_made']:.4g} with what is computed again"
    seconds = ", ".join(f"{name} {1000 * value:,.1f}" for name, value in report["seconds"].items())
    days = tokens / report["tokens_per_s"] / 86400
    return rows | {
        "operations": operations,
        "step": f"{1000 * report['seconds_a_step']:,.1f} ms at best, estimated from data sheets (ms: {seconds})",
        "speed": f"{report['tokens_per_s']:,.0f} tokens/s at best, MFU {report['mfu']:.2f}",
        "days": f"{days:,.2f} at best for {tokens:,} tokens",
    }


def with_faults(report: Report, options: LongRun, devices: int) -> Report:
    """What --fault-rate costs, if it is given."""
    if options.fault_rate is None:
        return {}
    faults = Faults.of(options.fault_rate, devices, report["checkpoint"], options.save_rate, options.restart)
    slowdown = faults.slowdown(faults.interval)
    about: FaultReport = {
        "seconds_between": faults.between,
        "interval_seconds": faults.interval,
        "interval_steps": max(1, round(faults.interval / report["seconds_a_step"])),
        "slowdown": slowdown if math.isfinite(slowdown) else None,
    }
    return {"faults": about}


def long_run_rows(report: Report, options: LongRun, run: Run) -> dict[str, str]:
    """The size of a checkpoint and of a store of the tokens, and what faults cost."""
    size = report["checkpoint"]
    saving = f"{size / options.save_rate:,.1f} s at {human_bytes(options.save_rate)} a second"
    rows = {"checkpoint": f"{human_bytes(size)}, saved in {saving} (--save-rate)"}
    if options.tokens and run.model.input.array_shape is None:
        width = 2 if run.model.vocab <= 1 << 16 else 4
        stored, read = human_bytes(width * options.tokens), human_bytes(width * report["tokens_per_s"])
        rows["data"] = f"as a store, {width} bytes a token: {stored}; all hosts read {read} a second"
    if faults := report.get("faults"):
        tokens = options.tokens or run.steps * report["tokens_a_step"]
        often = (
            f"one in {faults['seconds_between'] / 3600:,.1f} h; best saved every {faults['interval_seconds']:,.0f} s"
        )
        rows["faults"] = f"{often} ({faults['interval_steps']:,} steps)"
        days = (faults["slowdown"] or math.inf) * tokens / report["tokens_per_s"] / 86400
        cost = (
            f"{faults['slowdown']:.3f} times as long: {days:,.2f} days" if faults["slowdown"] else "the run never ends"
        )
        rows["with faults"] = cost
    return rows
