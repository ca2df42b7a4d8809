"""Bytes that a step moves between a device and its memory, estimated from shapes, and its time at best."""

import math

import jax

from train.devices.topology import Topology
from train.planning.memory import forward_pass, job_loss_memory, without_remat
from train.planning.report import Report
from train.training.job import Job


def memory_traffic(job: Job) -> float:
    """About how many bytes a step moves between a device and its memory.

    State and gradients are read and written once. For each part of the batch, three products read the layers, and
    activations are written once and read once. Remat adds one to both.
    """
    kept = without_remat(job)
    memory = job_loss_memory(kept, forward_pass(kept))
    recomputed = job.run.model.remat != "none"
    parameters = sum(math.prod(spec.shape) for spec in jax.tree.leaves(job.specs))
    per_device = parameters / job.mesh.shape.get("tensor", 1)
    weights = per_device * jax.numpy.dtype(job.run.model.dtype).itemsize
    state = 2 * (memory["parameters"] + memory["optimizer"] + memory["gradients"])
    return state + job.run.batch.accumulate * ((3 + recomputed) * weights + (2 + recomputed) * memory["activations"])


def roofline(report: Report, traffic: float, topology: Topology) -> Report:
    """The seconds of a step if products, memory and links reached their data sheets, all at the same time."""
    spec = topology.spec
    seconds = {
        "products": report["flops_made"] / topology.size / spec.flops,
        "memory": traffic / spec.bandwidth,
        "links": sum(collective["sent"] for collective in report["collectives"].values()) / spec.link,
    }
    slowest = max(seconds.values())
    return {
        "seconds": seconds,
        "seconds_a_step": slowest,
        "mfu": report["flops"] / topology.size / spec.flops / slowest,
        "tokens_per_s": report["tokens_a_step"] / slowest,
    }
