"""Devices that are not here: which there are, and what stands for them so that a program can be compiled for them."""

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Sequence
from typing import Any

from tfm.config.model import suggest
from train import UserError
from train.costs.counting import DEVICES, Device

# Shapes of slices that Google Cloud lends: of v5e and v6e in two dimensions, of v4 and v5p in three.
_FLAT = "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16".split()
_DEEP = "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16 16x16x16".split()
SHAPES = {"v4": _DEEP, "v5e": _FLAT, "v5p": _DEEP, "v6e": _FLAT}

# What libtpu is told of a machine without TPUs.
_ABSENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}

# Simulated devices that a process can have.
MOST = 1024


@dataclasses.dataclass(frozen=True)
class Topology:
    """`size` devices of a kind, as `name` says: v5p:4x4x8, or h100:8."""

    name: str
    kind: str
    size: int

    @property
    def device(self) -> Device:
        """What each of them can do."""
        return DEVICES[self.kind]

    @property
    def platform(self) -> str:
        """tpu | gpu."""
        return "tpu" if self.kind in SHAPES else "gpu"


def parse(name: str) -> Topology:
    """The topology of that name. Raises UserError for one that does not exist, with those that do."""
    kind, _, shape = name.partition(":")
    if kind not in DEVICES:
        raise UserError(
            f"--topology={name} is unknown{suggest(kind, DEVICES)}; write v5p:4x4x8 for TPUs, h100:8 for GPUs"
        )
    if kind in SHAPES and shape not in SHAPES[kind]:
        raise UserError(f"--topology={name} is unknown; {kind} has {', '.join(SHAPES[kind])}")
    if kind not in SHAPES and not re.fullmatch(r"[1-9]\d*", shape):
        raise UserError(f"--topology={name} must say how many devices there are: {kind}:8")
    return Topology(name, kind, math.prod(int(part) for part in shape.split("x")))


def larger(topology: Topology) -> list[str]:
    """The topologies of the same kind that have more devices, the smallest first."""
    if topology.kind not in SHAPES:
        return [f"{topology.kind}:{topology.size * times}" for times in (2, 4, 8, 16)]
    return [name for shape in SHAPES[topology.kind] if parse(name := f"{topology.kind}:{shape}").size > topology.size]


def devices(topology: Topology, simulate: bool = False) -> tuple[Sequence[Any], bool]:
    """What stands for the devices, and whether programs compiled for them are those that would run there, which libtpu makes.

    Else simulated CPU devices stand for them. Raises UserError where libtpu fails, or where that many cannot be simulated.
    """
    if topology.platform == "tpu" and not simulate and importlib.util.find_spec("libtpu"):
        return _described(topology), True
    return _simulated(topology), False


def _described(topology: Topology) -> Sequence[Any]:
    import jax
    from jax.experimental import topologies

    os.environ.update(_ABSENT)
    jax.config.update("jax_platforms", "cpu")
    options: dict[str, Any] = {"chips_per_host_bounds": (1, 1, 1)} if topology.size == 1 else {}
    options |= {"chip_config_name": "megacore"} if topology.kind == "v4" else {}
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=topology.name, **options).devices
    except Exception as error:  # of any kind, by version
        first = str(error).partition("\n")[0]
        raise UserError(
            f"libtpu does not know --topology={topology.name} ({first}); add --simulate=true to plan without it"
        ) from error


def _simulated(topology: Topology) -> Sequence[Any]:
    import jax

    if topology.size > MOST:
        remedy = "install libtpu" if topology.platform == "tpu" else "take fewer"
        raise UserError(
            f"--topology={topology.name} has {topology.size} devices, and {MOST} can be simulated; {remedy}"
        )
    try:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", topology.size)
    except RuntimeError:  # a backend runs already, in a notebook or a test
        pass
    here = jax.devices("cpu")
    if len(here) < topology.size:
        raise UserError(
            f"--topology={topology.name} needs {topology.size} simulated devices, and JAX runs with {len(here)}; start anew"
        )
    return here[: topology.size]
