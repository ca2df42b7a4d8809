"""Devices: how many a run uses, how its mesh arranges them, and what is sharded over which of them."""

import contextlib
import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence

import jax
from jax.core import ShapedArray
from jax.sharding import Mesh

import tfm
from train import UserError
from train.devices import cpu
from train.devices.specs import memory_bytes
from train.files import programs
from train.settings import schema

# Bytes of parameters, gradients and both moments of AdamW in float32; and the largest part of a device that they may
# fill, since activations need the rest.
BYTES_PER_PARAMETER = 16
MAX_STATE_FRACTION = 0.6

# A device of a CPU has at least this many rows of a batch.
MIN_ROWS = 4


def use_cores(run: schema.Run, processes: int = 1):
    """On a CPU: one virtual device a core, unless the user has set their number; freed memory stays with the process.

    M17: 0.80 of a step against one device with two threads. Tried: M18.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    by_config = jax.config.jax_num_cpu_devices != -1  # type: ignore[attr-defined]
    if "xla_force_host_platform_device_count" not in flags and not by_config:
        cores = cpu.core_count()
        count = tensor_parallelism(cores, run) if processes == 1 else 1
        if count == 1:
            rows = run.batch.unit // run.batch.accumulate // processes
            count = cpu_device_count(cores, rows, *dataclasses.astuple(run.mesh), processes=processes)
        with contextlib.suppress(RuntimeError):  # a notebook has started the backend before
            jax.config.update("jax_num_cpu_devices", count)
    if available_devices()[0].platform == "cpu":
        cpu.keep_memory()


def available_devices() -> list[jax.Device]:
    """The devices that JAX finds; programs that are compiled for them from now on are kept.

    Raises UserError where those that JAX_PLATFORMS asks for are not there.
    """
    programs.keep()
    try:
        return jax.devices()
    except RuntimeError as error:
        platforms = os.environ.get("JAX_PLATFORMS", "")
        reason = str(error).splitlines()[0]
        raise UserError(f"JAX_PLATFORMS={platforms} cannot be used: {reason}; unset it, or name another") from error


def cpu_device_count(cores: int, rows: int, *sizes: int, processes: int = 1) -> int:
    """The number of this process's devices, at most one a core.

    As many as the mesh sizes ask for. If one size is -1: as many as have `MIN_ROWS` rows each.
    """
    if -1 not in sizes:
        return max(1, min(cores, math.prod(sizes) // processes))
    return max((n for n in range(1, cores + 1) if rows % n == 0 and rows // n >= MIN_ROWS), default=1)


def tensor_parallelism(cores: int, run: schema.Run) -> int:
    """The size of the `tensor` axis over the cores of a CPU, for a run that asks for no mesh; 1 means data parallelism.

    Devices that share rows add up all gradients, and each updates all parameters; devices that share layers exchange
    activations. With few tokens for wide layers the second is less (M19: 0.88 of a step at width 512).
    """
    sizes = run.model.sizes
    batch = run.batch
    tokens = max(batch.tokens or 0, batch.unit * run.row_tokens) // batch.accumulate
    if run.mesh != schema.Mesh() or sizes["D"] < 256 or tokens > 3 * sizes["D"]:
        return 1
    divided = [size for tower in run.model.towers for size in (tower.heads, tower.sizes["F"])]
    divided.append(run.model.pad_vocab_to)
    return max(n for n in range(1, cores + 1) if not any(size % n for size in divided))


def mesh_for(
    run: schema.Run, specs, devices: Sequence[jax.Device] | None = None, report: Callable[[str], None] | None = None
) -> Mesh:
    """The mesh of `devices` (default: all) that the run asks for; if it asks for none, one on which the state fits.

    `report` receives the reason for a mesh that the run did not ask for. Raises UserError if the devices, the batch,
    its length or a parameter do not divide.
    """
    report = report or _ignore
    sizes = run.mesh
    if devices is None:
        devices = jax.devices()
        if devices[0].platform == "cpu":
            sizes = _cpu_sizes(run, len(devices), report)
    if sizes == schema.Mesh():
        widths = [tower.sizes[letter] for tower in run.model.towers for letter in "DU"]
        fsdp, reason = fsdp_size(tfm.count_params(specs), memory_bytes(devices[0]), len(devices), widths)
        sizes = dataclasses.replace(sizes, fsdp=fsdp)
        if fsdp > 1:
            report(reason)
    try:
        mesh = tfm.make_mesh(**dataclasses.asdict(sizes), devices=devices)
        tfm.shardings(specs, mesh)
        tfm.partition("B", (run.batch.unit // run.batch.accumulate,), mesh)
    except ValueError as error:
        raise UserError(f"--{error}") from error
    length = 0 if run.task.reads_pictures else run.batch.length  # pictures are cut where they can be
    context = mesh.shape["context"]
    if length % context:
        nearest = max(8, context, round(length / context) * context)
        raise UserError(
            f"--batch.length={length} must be a multiple of mesh.context={context}; try --batch.length={nearest}"
        )
    return mesh


def _ignore(message: str):
    """Reports nothing."""


def _cpu_sizes(run: schema.Run, devices: int, report: Callable[[str], None]) -> schema.Mesh:
    """The run's mesh sizes on all virtual devices of a CPU: tensor parallelism if it is faster."""
    cores = cpu.core_count()
    if 1 < devices == tensor_parallelism(devices, run) and jax.process_count() == 1:
        report(
            f"mesh.tensor={devices}: tensor parallelism over {devices} CPU devices; "
            "the batch is small compared with the model width"
        )
        return schema.Mesh(data=1, tensor=devices)
    if devices < cores and run.mesh == schema.Mesh():
        rows = run.batch.unit // run.batch.accumulate
        if devices < cpu_device_count(cores, rows // jax.process_count(), *dataclasses.astuple(run.mesh)):
            reason = "jax had started before with that number of CPU devices"
        else:
            reason = f"more parts would be unequal, or have fewer than {MIN_ROWS} rows"
        report(f"{rows} rows are split over {devices} of {cores} cores: {reason}")
    return run.mesh


def fsdp_size(params: int, memory: float | None, devices: int, widths: Sequence[int]) -> tuple[int, str]:
    """The size of the `fsdp` axis for `params` parameters, and the reason; `memory` in bytes of a device, if known.

    Copies of the whole state need the least traffic. So it is sharded only if it would fill a device, and over as few
    devices as possible.
    """
    state = BYTES_PER_PARAMETER * params
    takes = f"parameters, gradients and moments take {state / 1e9:.1f} GB"
    if not memory or state <= MAX_STATE_FRACTION * memory:
        return 1, f"mesh.fsdp=1: {takes}, which every device can hold"
    sizes = [n for n in range(1, devices + 1) if devices % n == 0 and not any(width % n for width in widths)]
    fsdp = min((n for n in sizes if state / n <= MAX_STATE_FRACTION * memory), default=sizes[-1])
    fits = state / fsdp <= MAX_STATE_FRACTION * memory
    remedy = "" if fits else "; even so they fill it, see --mesh.tensor and --model.remat"
    return fsdp, f"mesh.fsdp={fsdp}: {takes}, and a device has {memory / 1e9:.1f} GB{remedy}"


def bytes_per_device(arrays: Iterable[jax.Array | jax.ShapeDtypeStruct | ShapedArray]) -> int:
    """Bytes of arrays, or of shapes with shardings, on one of their devices."""
    total = 0
    for array in arrays:
        if hasattr(array, "shape"):
            shape = array.sharding.shard_shape(array.shape) if array.sharding else array.shape
            total += math.prod(shape) * array.dtype.itemsize
    return total


def sharding_table(specs, mesh: Mesh) -> dict[str, str]:
    """How matrices, tables and batches are sharded: `vocabulary over tensor` -> the names that share that sharding.

    Optimizer state is sharded as its parameters are.
    """
    names: dict[str, list[str]] = {}
    for path, spec in jax.tree_util.tree_leaves_with_path(specs):
        if not spec.decay:
            continue  # biases and norms are sharded as their matrices
        name = re.sub(
            r"\b(encoder|decoder|kernel|layers|prefix|period|tail|\d+)\b",
            "",
            jax.tree_util.keystr(path, simple=True, separator="."),
        )
        sharding = ", ".join(_sharded_axes(spec, mesh)) or "replicated on every device"
        names.setdefault(sharding, []).append(name.strip("."))
    table = {sharding: ", ".join(dict.fromkeys(group)) for sharding, group in names.items()}
    if batch := _batch_sharding(mesh):
        table[batch] = "batches"
    return table


def _sharded_axes(spec, mesh: Mesh) -> list[str]:
    """The axes of a parameter that are sharded, and over what; heads that `mesh.tensor` cannot divide."""
    places = tfm.partition(spec.axes, spec.shape, mesh)
    sharded = sorted(
        f"{_meaning(letter)} over {place}" for letter, place in zip(spec.axes, places, strict=True) if place
    )
    if mesh.shape["tensor"] > 1 and "K" in spec.axes and "tensor" not in places:
        heads = spec.shape[spec.axes.index("K")]
        sharded.append(f"{heads} {_meaning('K')} replicated: mesh.tensor={mesh.shape['tensor']} does not divide them")
    return sharded


def _batch_sharding(mesh: Mesh) -> str:
    """Over what the rows and the positions of a batch are sharded; empty if they are not."""
    rows = " x ".join(name for name in tfm.AXES["B"].mesh if mesh.shape.get(name, 1) > 1)
    sharded = [f"rows over {rows}"] if rows else []
    if mesh.shape["context"] > 1:
        sharded.append("positions over context")
    return ", ".join(sharded)


def _meaning(letter: str) -> str:
    """The meaning of an axis in a word or two."""
    return tfm.AXES[letter].meaning.partition(",")[0]
