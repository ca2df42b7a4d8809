"""The JSON object of `train.plan`."""

from typing import TypedDict


class Collective(TypedDict):
    """Collectives of one kind in a step: how often they run, and the bytes that a device sends."""

    number: int
    sent: float


class Report(TypedDict, total=False):
    """What a step needs, sends and computes.

    mesh: sizes of its axes
    tokens_a_step: positions of a batch
    attention: the kernels and the reasons for them
    flops, flops_made: operations of the model, and with what is recomputed
    estimated: bytes of a device, without the compiler
    fits: whether the memory of a device suffices
    memory: bytes of a device by purpose, and "all"
    refused: why the compiler refuses the step
    collectives: by kind
    seconds: of products, memory and links at the peaks of the data sheets
    seconds_a_step: the largest of them
    mfu, tokens_per_s: at these seconds
    instead: flags of the first run that fits; None where none does
    """

    mesh: dict[str, int]
    tokens_a_step: int
    attention: list[str]
    flops: int
    flops_made: int
    estimated: float
    fits: bool
    memory: dict[str, float]
    refused: str
    collectives: dict[str, Collective]
    seconds: dict[str, float]
    seconds_a_step: float
    mfu: float
    tokens_per_s: float
    instead: str | None
