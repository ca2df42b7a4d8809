"""The JSON object of `train.plan`, and rows of its table."""

from typing import TypedDict

from train.screens.console import human_bytes


class Report(TypedDict, total=False):
    """What a step needs, sends and computes.

    mesh: sizes of its axes
    tokens_a_step: positions of a batch
    texts: how the texts of a batch lie in rows, where they do
    attention: the kernels and the reasons for them
    flops, flops_made: operations of the model, and with what is recomputed
    estimated: bytes of a device, without the compiler
    fits: whether the memory of a device suffices
    memory: bytes of a device by purpose, and "all"
    refused: why the compiler refuses the step
    collectives: by kind: how often they run, and the bytes that a device sends
    seconds: of products, memory and links at the peaks of the data sheets
    seconds_a_step: the largest of them
    mfu, tokens_per_s: at these seconds
    instead: flags of the first run that fits; None where none does
    """

    mesh: dict[str, int]
    tokens_a_step: int
    texts: str
    attention: list[str]
    flops: int
    flops_made: int
    estimated: float
    fits: bool
    memory: dict[str, float]
    refused: str
    collectives: dict[str, dict[str, float]]
    seconds: dict[str, float]
    seconds_a_step: float
    mfu: float
    tokens_per_s: float
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
