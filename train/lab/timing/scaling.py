"""How time and memory of a training step grow with the length of a text."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import jax
import numpy as np

from train import UserError
from train.devices import cpu
from train.lab.timing.timing import Batches, on_devices
from train.planning.counting import model_flops
from train.settings.limits import MAX_ROWS
from train.training.job import Job

# The most seconds of timed steps of a length, and the least such steps.
_SECONDS, _STEPS = 10.0, 3


# A line of JSON: the measures of a mixer at a length, or the exponents of a mixer.
Line = dict[str, object]


def parse_lengths(text: str) -> list[int]:
    """`512,1024` -> the lengths, the smallest first. Raises UserError for other texts."""
    words = text.split(",")
    if not all(word.isdecimal() and 8 <= int(word) <= MAX_ROWS for word in words) or len(set(words)) < 2:
        raise UserError(f"--lengths={text} must be two or more whole numbers from 8 on, such as 512,1024,2048")
    return sorted({int(word) for word in words})


def measure(job: Job, batches: Batches, steps: int) -> Line:
    """Milliseconds of a step (median, least), each waited for, its operations, and the bytes that it needs.

    `peak_bytes` are those beside state and batch, on a device, as XLA plans them. A step that runs out of memory has
    an `error` alone.
    """
    try:
        with jax.set_mesh(job.mesh), cpu.awake(job.mesh.local_devices, job.run.cpu.keep_awake):
            state = job.new_state()
            batch = on_devices(job, batches(0))
            compiled = job.train_step.lower(state, batch).compile()
            seconds: list[float] = []
            for _ in range(1 + steps):
                began = time.perf_counter()
                state, sums = compiled(state, batch)
                jax.block_until_ready((state, sums))
                seconds.append(time.perf_counter() - began)
                if sum(seconds[1:]) > _SECONDS and len(seconds) > _STEPS:
                    break
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"error": "out of memory"}
    return {
        "ms_median": round(1e3 * statistics.median(seconds[1:]), 3),
        "ms_min": round(1e3 * min(seconds[1:]), 3),
        "peak_bytes": int(compiled.memory_analysis().temp_size_in_bytes),
        "flops": model_flops(job),
        "steps": len(seconds) - 1,
    }


def measure_all(
    jobs: Mapping[str, Mapping[int, Callable[[], tuple[Job, Batches]]]], steps: int, show: Callable[[Line], None]
) -> list[Line]:
    """The measures of every mixer and length, and then the exponents of each mixer; `show` gets each when it is there.

    A job is made when its turn comes, and forgotten after it.
    """
    lines: list[Line] = []
    for mixer, by_length in jobs.items():
        measured: list[Line] = []
        for length, make in by_length.items():
            job, batches = make()
            measured.append({"mixer": mixer, "length": length, **measure(job, batches, steps)})
            show(measured[-1])
            del job
            jax.clear_caches()
            gc.collect()
        fit: Line = {"mixer": mixer, "lengths": [line["length"] for line in measured if "error" not in line]}
        for name, key in (("exponent_time", "ms_median"), ("exponent_peak_bytes", "peak_bytes")):
            fit[name] = exponent([(_number(line, "length"), _number(line, key)) for line in measured if key in line])
        show(fit)
        lines += [*measured, fit]
    return lines


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """The p of value = c length^p: the slope of a line through logarithms, by least squares; None of fewer than two."""
    points = [(length, value) for length, value in points if value > 0]
    if len(points) < 2:
        return None
    x, y = (np.log(np.array(column, float)) for column in zip(*points, strict=True))
    x -= x.mean()
    return round(float((x * y).sum() / (x * x).sum()), 3)


def _number(line: Line, key: str) -> float:
    return cast(float, line[key])


def draw(lines: Sequence[Line], path: Path):
    """Time and bytes by length on logarithmic axes: a line a mixer, with its exponent."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    fits = {line["mixer"]: line for line in lines if "lengths" in line}
    columns = (
        ("ms_median", 1.0, "milliseconds of a step", "exponent_time"),
        ("peak_bytes", 1e6, "megabytes beside state and batch", "exponent_peak_bytes"),
    )
    for axes, (key, unit, label, name) in zip(figure.subplots(1, 2), columns, strict=True):
        ticks: set[float] = set()
        for mixer, fit in fits.items():
            of_mixer = [line for line in lines if line["mixer"] == mixer and line.get(key)]
            points = [(_number(line, "length"), _number(line, key) / unit) for line in of_mixer]
            if points:
                slope = "" if fit[name] is None else f", exponent {fit[name]:.2f}"
                axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=f"{mixer}{slope}")
                ticks |= {length for length, _ in points}
        axes.set(xscale="log", yscale="log", xlabel="tokens of a text", ylabel=label)
        shown = sorted(ticks)[:: math.ceil(max(1, len(ticks)) / 8)]
        axes.set_xticks(shown, [f"{length:,}" for length in shown], fontsize=8)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)
