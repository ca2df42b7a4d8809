"""How long training steps take, and where the time goes: to making batches, to sending them, or to computing."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

import tfm
from train.devices import cpu
from train.devices.specs import peak_flops
from train.planning.counting import model_flops
from train.runs.state import State
from train.training.job import Job, batch_to_devices

# Fields [B, ...] in the host's memory; a batch may also be those [parts, B / parts, ...] of a step on the devices.
HostBatch = Mapping[str, np.ndarray]
Batch = HostBatch | Mapping[str, Array]

# From a step to its batch.
Batches = Callable[[int], Batch]

# Side of the square products whose speed is the roof (memory does not limit them), and how often they run.
_ROOF_SIDE = 2048
_ROOF_REPEATS = 5


class StepTime(NamedTuple):
    """Seconds of a step: making the batch; sending it and calling the step; waiting for the result."""

    data: float
    host: float
    device: float


class Timing(NamedTuple):
    """Seconds of compilation, the timed steps, and the last loss.

    Compilation is the time that warm-up steps take beyond a timed one.
    """

    compile: float
    steps: list[StepTime]
    loss: float


def prepared(job: Job, batches: Sequence[HostBatch]) -> Batches:
    """Batches that are on the devices before a step begins, in turn."""
    with jax.set_mesh(job.mesh):
        fields = jax.block_until_ready([batch_to_devices(job, batch) for batch in batches])
    return lambda step: fields[step % len(fields)]


def on_devices(job: Job, batch: Batch):
    """The fields of a step, which are sent if they are not there (`prepared`)."""
    return {
        name: field if isinstance(field, Array) else batch_to_devices(job, {name: field})[name]
        for name, field in batch.items()
    }


def time_steps(job: Job, batches: Batches, warmup: int, steps: int) -> tuple[Timing, State]:
    """Times steps from a fresh state, each waited for, and returns the last state. The first `warmup` steps compile."""
    times: list[StepTime] = []
    loss = 0.0
    state = job.new_state()
    with jax.set_mesh(job.mesh), cpu.awake(job.mesh.local_devices, job.run.cpu.keep_awake):
        for n in range(warmup + steps):
            start = time.perf_counter()
            batch = batches(n)
            batch_ready = time.perf_counter()
            state, sums = job.train_step(state, on_devices(job, batch))
            step_called = time.perf_counter()
            jax.block_until_ready((state, sums))
            step_done = time.perf_counter()
            times.append(StepTime(batch_ready - start, step_called - batch_ready, step_done - step_called))
            loss = float(sums["loss"]) / float(sums["weight"])
    typical = statistics.median(sum(step_time) for step_time in times[warmup:])
    compilation = sum(max(0.0, sum(step_time) - typical) for step_time in times[:warmup])
    return Timing(compilation, times[warmup:], loss), state


def summary(timing: Timing) -> dict[str, object]:
    """Milliseconds of a step, seconds of compilation, the peak of memory in use, and the last loss."""
    milliseconds = [1e3 * sum(step_time) for step_time in timing.steps]
    return {
        "ms_median": round(statistics.median(milliseconds), 3),
        "ms_min": round(min(milliseconds), 3),
        "compile_s": round(timing.compile, 2),
        "peak_bytes": (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
        "loss": round(timing.loss, 4),
    }


def shares(timing: Timing) -> dict[str, float]:
    """The shares of making batches, sending them and computing in the time of the steps."""
    total = sum(map(sum, timing.steps))
    return {
        f"share_{name}": round(sum(getattr(step_time, name) for step_time in timing.steps) / total, 4)
        for name in StepTime._fields
    }


def time_loop(job: Job, state: State, batches: Batches, steps: int) -> tuple[float, State]:
    """Seconds of a step in the trainer's loop, and the last state; the next batch is made while a step is computed."""
    with jax.set_mesh(job.mesh), cpu.awake(job.mesh.local_devices, job.run.cpu.keep_awake):
        start = time.perf_counter()
        for n in range(steps):
            state, _ = job.train_step(state, on_devices(job, batches(n)))
        jax.block_until_ready(state)
    return (time.perf_counter() - start) / steps, state


def time_data(job: Job, batches: Batches, steps: int) -> float:
    """Seconds to make a batch and send it to the devices, one after the other."""
    with jax.set_mesh(job.mesh):
        start = time.perf_counter()
        for n in range(steps):
            jax.block_until_ready(on_devices(job, batches(n)))
    return (time.perf_counter() - start) / steps


def generation(
    params: tfm.CausalLM, model: tfm.Config, prompts: np.ndarray, max_new_tokens: int, repeats: int
) -> dict[str, float]:
    """The numbers of reading prompts [B,T] and of writing after them, the means of some repetitions.

    Milliseconds of the prefill, and of a token: with a cache, the first and the last tenth too, and without one.
    """
    rows, prompt_length = prompts.shape
    times = [time_generation(params, model, prompts, max_new_tokens) for _ in range(1 + repeats)][1:]
    prefill, decode, without_cache = (1e3 * np.median(seconds, axis=0) for seconds in zip(*times, strict=True))
    tenth = max_new_tokens // 10
    milliseconds = {
        "prefill": prefill,
        "decode": decode,
        "decode_first": decode[:tenth],
        "decode_last": decode[-tenth:],
        "read_again": without_cache,
    }
    return {
        **{f"ms_{name}": round(float(values.mean()), 4) for name, values in milliseconds.items()},
        "prefill_tokens_per_s": round(rows * prompt_length * 1e3 / prefill.mean()),
        "decode_tokens_per_s": round(rows * 1e3 / decode.mean()),
    }


def time_generation(params, model, prompts: np.ndarray, max_new_tokens: int):
    """Prompts [B,T] -> seconds (lists): of the prefill and first token; of each later token; of each without a cache.

    Without a cache, the model reads the whole text again for each token.
    """
    generation = tfm.Generation(params, model, prompts.tolist(), max_new_tokens)
    start = time.perf_counter()
    generation.advance(1)
    prefill = time.perf_counter() - start
    decode: list[float] = []
    while not generation.done:
        tokens_before = generation.num_generated
        start = time.perf_counter()
        generation.advance(max(1, max_new_tokens // 10))
        count = generation.num_generated - tokens_before
        decode += [(time.perf_counter() - start) / count] * count
    return [prefill], decode, _time_without_cache(params, model, prompts, max_new_tokens)


def _time_without_cache(params, model, prompts: np.ndarray, max_new_tokens: int) -> list[float]:
    """Seconds of each greedy token when the whole text is read again."""
    tokens = np.pad(prompts, ((0, 0), (0, max_new_tokens)))
    times: list[float] = []
    for position in range(prompts.shape[1] - 1, tokens.shape[1] - 1):
        start = time.perf_counter()
        tokens[:, position + 1] = _next_token(params, model, tokens, position)
        times.append(time.perf_counter() - start)
    return times


@partial(jax.jit, static_argnums=1)
def _next_token(params, model, tokens: Array, position: Array) -> Array:
    """tokens [B,T] -> the most probable token after a position, [B]."""
    return tfm.causal_lm(params, model, tokens)[:, position].argmax(-1)


def mean_flops(job: Job, batches: Batches, steps: int) -> float:
    """The model's floating-point operations in a step, on average over batches, which may have several shapes."""
    by_shape: dict[tuple[tuple[int, ...], ...], int] = {}
    total = 0
    for n in range(steps):
        fields = on_devices(job, batches(n))
        shape = tuple(field.shape for field in fields.values())
        if shape not in by_shape:
            by_shape[shape] = model_flops(job, jax.tree.map(lambda field: field[0], fields))
        total += by_shape[shape]
    return total / steps


def utilization(job: Job, flops: float, seconds: float) -> dict[str, float]:
    """The share of the peak that a step reaches, from its operations and seconds.

    In 16 bits, with a data sheet: `mfu`, the share of its peak. Otherwise the share of a roof that is measured here.
    """
    devices = job.mesh.devices.ravel()
    peak = peak_flops(devices[0].device_kind) if job.run.model.dtype != "float32" else None
    if peak:
        return {"mfu": round(flops / seconds / peak / len(devices), 4)}
    roof = measured_roof(job.mesh, job.run.model.dtype)
    return {"roof_flops_per_s": round(roof), "share_of_roof": round(flops / seconds / roof, 4)}


def measured_roof(mesh, dtype: str) -> float:
    """FLOP/s of large matrix products, one on each device at a time, over all devices: the fastest of a few."""
    sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    shape = (mesh.size, _ROOF_SIDE, _ROOF_SIDE)
    draw = jax.jit(lambda key: jax.random.normal(key, shape, dtype, out_sharding=sharding))
    product = jax.jit(lambda x, y: jnp.einsum("BMN,BNK->BMK", x, y, preferred_element_type=jnp.float32).astype(dtype))
    seconds = []
    with jax.set_mesh(mesh):
        x, y = (jax.block_until_ready(draw(jax.random.key(n))) for n in range(2))
        for _ in range(1 + _ROOF_REPEATS):
            start = time.perf_counter()
            jax.block_until_ready(product(x, y))
            seconds.append(time.perf_counter() - start)
    return 2 * mesh.size * _ROOF_SIDE**3 / min(seconds[1:])
