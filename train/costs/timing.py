"""How long training steps take, and where the time goes: to making batches, to handing them over, or to computing."""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

import tfm
from train.costs.job import Job
from train.data import feed
from train.devices import cpu
from train.devices.specs import peak_flops
from train.training import step

# From a number to the batch with it, in the host's memory: fields [B, ...].
Batches = Callable[[int], Mapping[str, np.ndarray]]

# Side of the square products whose speed is the roof: large enough that memory does not matter, and done in a moment. How often they run.
_SIDE, _TRIES = 2048, 5


class Step(NamedTuple):
    """Seconds of a step: until its batch was made, until it was handed over and the step called, and until all was computed."""

    data: float
    host: float
    device: float


class Timing(NamedTuple):
    """Seconds of compilation: what the steps before took more than those that are timed; these; and the last loss."""

    compile: float
    steps: list[Step]
    loss: float


def time_steps(job: Job, batches: Batches, warmup: int, steps: int) -> tuple[Timing, Any]:
    """Steps from a fresh state, each waited for, and the state that they end with; the first `warmup` only compile."""
    parts, found, loss = job.run.batch.accumulate, list[Step](), 0.0
    state = step.new_state(job.specs, job.optimizer, job.run.seed, job.mesh, job.run.optim.ema)
    with jax.set_mesh(job.mesh), cpu.awake(job.mesh.local_devices):
        for n in range(warmup + steps):
            began = time.perf_counter()
            batch = batches(n)
            made = time.perf_counter()
            state, sums = job.train_step(state, feed.to_devices(batch, job.spec, job.mesh, parts))
            called = time.perf_counter()
            jax.block_until_ready((state, sums))
            found.append(Step(made - began, called - made, time.perf_counter() - called))
            loss = float(sums["loss"]) / float(sums["weight"])
    typical = statistics.median(sum(each) for each in found[warmup:])
    return Timing(sum(max(0.0, sum(each) - typical) for each in found[:warmup]), found[warmup:], loss), state


def time_loop(job: Job, state, batches: Batches, steps: int) -> tuple[float, Any]:
    """Seconds of a step as the trainer makes them, where a batch is made while the step before it is computed; and the state after them."""
    with jax.set_mesh(job.mesh), cpu.awake(job.mesh.local_devices):
        began = time.perf_counter()
        for n in range(steps):
            state, _ = job.train_step(state, feed.to_devices(batches(n), job.spec, job.mesh, job.run.batch.accumulate))
        jax.block_until_ready(state)
    return (time.perf_counter() - began) / steps, state


def time_data(job: Job, batches: Batches, steps: int) -> float:
    """Seconds of a step that does nothing: batches are made and sent to the devices, one after the other."""
    with jax.set_mesh(job.mesh):
        began = time.perf_counter()
        for n in range(steps):
            jax.block_until_ready(feed.to_devices(batches(n), job.spec, job.mesh, job.run.batch.accumulate))
    return (time.perf_counter() - began) / steps


def time_writing(params, model, prompts: np.ndarray, new: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds until prompts [B,T] are read and each has a first token; of each later one, written with a cache; and of each token where
    all that is there is read again."""
    text, decode, again = tfm.Generation(params, model, prompts, new), list[float](), list[float]()
    began = time.perf_counter()
    text.advance(1)
    prefill = time.perf_counter() - began
    while not text.done:
        began, before = time.perf_counter(), text.num_generated
        text.advance(max(1, new // 10))
        decode += [(time.perf_counter() - began) / (text.num_generated - before)] * (text.num_generated - before)

    tokens = np.pad(prompts, ((0, 0), (0, new)))
    for place in range(prompts.shape[1] - 1, tokens.shape[1] - 1):
        began = time.perf_counter()
        tokens[:, place + 1] = _next(params, model, tokens, place)
        again.append(time.perf_counter() - began)
    return [prefill], decode, again


@partial(jax.jit, static_argnums=1)
def _next(params, model, tokens: Array, place: Array) -> Array:
    """The most probable token after a place, [B]."""
    return tfm.causal_lm(params, model, tokens)[:, place].argmax(-1)


def mean_flops(job: Job, batches: Batches, steps: int) -> float:
    """Operations that the model asks for in a step, on average over batches, which may have several shapes."""
    found: dict[Any, int] = {}

    def of(n: int) -> int:
        fields = feed.to_devices(batches(n), job.spec, job.mesh, job.run.batch.accumulate)
        shape = tuple(field.shape for field in fields.values())
        if shape not in found:
            found[shape] = job.model_flops(jax.tree.map(lambda field: field[0], fields))
        return found[shape]

    return statistics.mean(map(of, range(steps)))


def share(job: Job, flops: float, seconds: float) -> dict[str, float]:
    """What the products of a step of that many seconds reach: the share of what the data sheet allows (MFU) where it is known, in bfloat16;
    else of the roof that is measured here, in FLOP/s."""
    devices = job.mesh.devices.ravel()
    peak = peak_flops(devices[0].device_kind) if job.run.model.dtype == "bfloat16" else None
    if peak:
        return {"mfu": round(flops / seconds / peak / len(devices), 4)}
    roof = measured_roof(job.mesh, job.run.model.dtype)
    return {"roof_flops_per_s": round(roof), "share_of_roof": round(flops / seconds / roof, 4)}


def measured_roof(mesh, dtype: str) -> float:
    """FLOP/s of large matrix products, one on each device at a time, all devices together: the best of a few."""
    everywhere = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    draw = jax.jit(lambda key: jax.random.normal(key, (mesh.size, _SIDE, _SIDE), dtype, out_sharding=everywhere))
    product = jax.jit(lambda x, y: jnp.einsum("BMN,BNK->BMK", x, y))
    seconds = []
    with jax.set_mesh(mesh):
        x, y = (jax.block_until_ready(draw(jax.random.key(n))) for n in range(2))
        for _ in range(1 + _TRIES):
            began = time.perf_counter()
            jax.block_until_ready(product(x, y))
            seconds.append(time.perf_counter() - began)
    return 2 * mesh.size * _SIDE**3 / min(seconds[1:])
