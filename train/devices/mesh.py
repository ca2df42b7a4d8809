"""Devices: how many a run uses, how it arranges them, and what lives where."""

import contextlib
import dataclasses
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import Mesh

import tfm
from train import UserError
from train.costs import counting
from train.devices import cpu as cores
from train.settings import schema

# What parameters, gradients and both moments of AdamW take, and how much of a device they may fill: the rest is for activations.
BYTES_A_PARAMETER, SHARE = 16, 0.6


def use_cores(run: schema.Run, processes: int = 1):
    """On a CPU, one virtual device a core, if nobody has set their number, and memory that is kept from step to step.

    M17: 0.80 of a step against one device with two threads. Tried: M18.
    """
    if (
        "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", "")
        and jax.config.jax_num_cpu_devices == -1
    ):  # type: ignore[attr-defined]
        count, rows, sizes = (
            cores.number(),
            run.batch.unit // run.batch.accumulate // processes,
            dataclasses.astuple(run.mesh),
        )
        parts = parts_of_layers(count, run) if processes == 1 else 1
        with contextlib.suppress(RuntimeError):  # a backend runs already, in a notebook
            jax.config.update(
                "jax_num_cpu_devices", parts if parts > 1 else devices_for(count, rows, *sizes, processes=processes)
            )
    if jax.default_backend() == "cpu":
        cores.keep_memory()


def devices_for(cores: int, rows: int, *sizes: int, processes: int = 1) -> int:
    """As many devices of this process as the mesh sizes ask for, or, where one is -1, as have 4 rows of the batch each or more; one a core
    at most."""
    if -1 not in sizes:
        return max(1, min(cores, math.prod(sizes) // processes))
    return max((n for n in range(1, cores + 1) if rows % n == 0 and rows // n >= 4), default=1)


def parts_of_layers(cores: int, run: schema.Run) -> int:
    """Into how many parts the cores of a CPU cut layers, where nobody asks for a mesh; 1: they have some rows each.

    Devices that share rows add up all gradients, and each updates all parameters; devices that share layers exchange
    activations. With few tokens for wide layers the second is less (M19: 0.88 of a step at width 512).
    """
    sizes, batch = run.model.sizes, run.batch
    tokens = max(batch.tokens, batch.unit * batch.length) // batch.accumulate
    if run.mesh != schema.Mesh() or sizes["D"] < 256 or tokens > 3 * sizes["D"]:
        return 1
    divided = (run.model.heads, sizes["F"], run.model.vocab_multiple)
    return max(n for n in range(1, cores + 1) if not any(size % n for size in divided))


def arrange(
    run: schema.Run, specs, devices: Sequence[Any] | None = None, say: Callable[[str], None] = lambda reason: None
) -> Mesh:
    """The mesh of `devices` (default: all) that the run asks for; where it asks for none, one on which the state fits.

    Raises UserError where the devices, the batch, its length or a parameter do not divide.
    """
    sizes = run.mesh
    if devices is None:
        devices, rows = jax.devices(), run.batch.unit // run.batch.accumulate
        cpu, number = devices[0].platform == "cpu", len(devices)
        if cpu and 1 < number == parts_of_layers(number, run) and jax.process_count() == 1:
            sizes = schema.Mesh(data=1, tensor=number)
            say(f"mesh.tensor={number}: the cores share layers, not rows, for a batch has few tokens for their width")
        elif cpu and number < cores.number() and sizes == schema.Mesh():
            say(
                f"{rows} rows are cut into {number} for {cores.number()} cores: more parts would be unequal, or have less than 4 rows"
            )
    if sizes == schema.Mesh():
        widths = (run.model.sizes["D"], run.model.sizes["U"])
        fsdp, reason = fsdp_for(tfm.count_params(specs), counting.room(devices[0]), len(devices), widths)
        sizes = dataclasses.replace(sizes, fsdp=fsdp)
        if fsdp > 1:
            say(reason)
    try:
        mesh = tfm.make_mesh(**dataclasses.asdict(sizes), devices=devices)
        tfm.shardings(specs, mesh)
        tfm.partition("B", (run.batch.unit // run.batch.accumulate,), mesh)
    except ValueError as error:
        raise UserError(f"--{error}") from error
    length, context = run.batch.length, mesh.shape["context"]
    if length % context:
        near = max(8, context, round(length / context) * context)
        raise UserError(
            f"--batch.length={length} must be a multiple of mesh.context={context}; try --batch.length={near}"
        )
    return mesh


def fsdp_for(params: int, memory: float | None, devices: int, widths: Sequence[int]) -> tuple[int, str]:
    """Over how many devices to spread parameters and optimizer state, and why; `memory` is that of a device in bytes, if it is known.

    Copies of the whole state need the least traffic, so it is cut only where it would fill a device, into as few parts as will fit.
    """
    state = BYTES_A_PARAMETER * params
    takes = f"parameters, gradients and moments take {state / 1e9:.1f} GB"
    if not memory or state <= SHARE * memory:
        return 1, f"mesh.fsdp=1: {takes}, which every device can hold"
    ways = [n for n in range(1, devices + 1) if devices % n == 0 and not any(width % n for width in widths)]
    most = min((n for n in ways if state / n <= SHARE * memory), default=ways[-1])
    over = "" if state / most <= SHARE * memory else "; even so they fill it, see --mesh.tensor and --model.remat"
    return most, f"mesh.fsdp={most}: {takes}, and a device has {memory / 1e9:.1f} GB{over}"


def spread(specs, mesh: Mesh) -> dict[str, str]:
    """A table of what is cut along which axes of the mesh: the matrices and tables, with the optimizer state that belongs to them, and
    batches."""
    groups: dict[str, list[str]] = {}
    for path, spec in jax.tree_util.tree_leaves_with_path(specs):
        if not spec.decay:
            continue  # biases and norms go with their matrices
        places = tfm.partition(spec.axes, spec.shape, mesh)
        cut = sorted(
            f"{_meaning(letter)} over {place}" for letter, place in zip(spec.axes, places, strict=True) if place
        )
        if mesh.shape["tensor"] > 1 and "K" in spec.axes and "tensor" not in places:
            heads = spec.shape[spec.axes.index("K")]
            cut.append(f"{heads} {_meaning('K')} whole, for mesh.tensor={mesh.shape['tensor']} does not divide them")
        name = re.sub(
            r"\b(encoder|decoder|blocks|kernel)\b", "", jax.tree_util.keystr(path, simple=True, separator=".")
        )
        groups.setdefault(", ".join(cut) or "whole on every device", []).append(name.strip("."))
    rows = " x ".join(name for name in ("data", "fsdp") if mesh.shape[name] > 1)
    batch = [f"rows over {rows}"] * bool(rows) + ["positions over context"] * (mesh.shape["context"] > 1)
    return {cut: ", ".join(dict.fromkeys(names)) for cut, names in groups.items()} | {
        ", ".join(batch): "batches" for _ in batch[:1]
    }


def _meaning(letter: str) -> str:
    """What an axis is, in a word or two."""
    return tfm.AXES[letter].meaning.partition(",")[0]
