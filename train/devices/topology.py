"""Devices of another machine: which exist, and stand-ins for them, so that programs can be compiled for them."""

import contextlib
import dataclasses
import importlib.util
import itertools
import math
import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tfm.options.errors import suggest
from train import UserError
from train.devices.specs import DEVICE_SPECS, DeviceSpec

if TYPE_CHECKING:
    from jax import Device

# Shapes of the slices of Google Cloud: two dimensions for v5e and v6e, three for v4 and v5p.
_FLAT = "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16".split()
_DEEP = "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16 16x16x16".split()
SHAPES = {"v4": _DEEP, "v5e": _FLAT, "v5p": _DEEP, "v6e": _FLAT}

# Environment variables with which libtpu works on a machine without TPUs.
_NO_TPU_ENVIRON = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}

# The version of cuDNN that a plan for GPUs assumes.
_CUDNN_VERSION = 91000

# The largest number of simulated devices.
MAX_SIMULATED = 1024


@dataclasses.dataclass(frozen=True)
class Topology:
    """`size` devices of one kind; `name` is v5p:4x4x8 or h100:8."""

    name: str
    kind: str
    size: int

    @property
    def spec(self) -> DeviceSpec:
        """The data sheet of the devices."""
        return DEVICE_SPECS[self.kind]

    @property
    def platform(self) -> str:
        """tpu | gpu."""
        return "tpu" if self.kind in SHAPES else "gpu"

    @property
    def stand_ins(self) -> list["StandIn"]:
        """A stand-in for each device."""
        sides = [int(side) for side in self.name.partition(":")[2].split("x")]
        places = itertools.product(*map(range, (*sides, *[1] * (3 - len(sides)))))
        return [StandIn(index, self.platform, self.spec.full_name, place) for index, place in enumerate(places)]


@dataclasses.dataclass(frozen=True, eq=False)
class StandIn:
    """A device that is not here, as far as jax asks about it while it traces a program for its mesh."""

    id: int
    platform: str
    device_kind: str
    coords: tuple[int, ...]
    core_on_chip: int = 0
    process_index: int = 0


def parse(name: str) -> Topology:
    """The topology of that name. Raises UserError for an unknown one, with the known ones."""
    kind, _, shape = name.partition(":")
    if kind not in DEVICE_SPECS:
        raise UserError(
            f"--topology={name} is unknown{suggest(kind, DEVICE_SPECS)}; write v5p:4x4x8 for TPUs, h100:8 for GPUs"
        )
    if kind in SHAPES and shape not in SHAPES[kind]:
        raise UserError(f"--topology={name} is unknown; {kind} has {', '.join(SHAPES[kind])}")
    if kind not in SHAPES and not re.fullmatch(r"[1-9]\d*", shape):
        raise UserError(f"--topology={name} must say how many devices there are: {kind}:8")
    return Topology(name, kind, math.prod(int(part) for part in shape.split("x")))


def larger(topology: Topology) -> list[str]:
    """The names of topologies of the same kind with more devices, the smallest first."""
    if topology.kind not in SHAPES:
        return [f"{topology.kind}:{topology.size * factor}" for factor in (2, 4, 8, 16)]
    candidates = [parse(f"{topology.kind}:{shape}") for shape in SHAPES[topology.kind]]
    return [candidate.name for candidate in candidates if candidate.size > topology.size]


def devices(topology: Topology, simulate: bool = False) -> "tuple[Sequence[Device], bool]":
    """Devices for which jax compiles in place of these, and whether programs compiled for them are the real ones.

    libtpu describes TPUs that are absent; its programs are the real ones. Otherwise CPU devices simulate them. Raises
    UserError if libtpu fails, or if that number of devices cannot be simulated.
    """
    if topology.platform == "tpu" and not simulate and importlib.util.find_spec("libtpu"):
        return _described(topology), True
    return _simulated(topology), False


@contextlib.contextmanager
def installed_cudnn() -> Iterator[None]:
    """Lets jax trace the attention of cuDNN as if a current one were installed."""
    from jax._src.cudnn import fused_attention_stablehlo

    check = fused_attention_stablehlo.check_cudnn_version
    fused_attention_stablehlo.check_cudnn_version = lambda: _CUDNN_VERSION
    try:
        yield
    finally:
        fused_attention_stablehlo.check_cudnn_version = check


def _described(topology: Topology) -> "Sequence[Device]":
    import jax
    from jax.experimental import topologies

    os.environ.update(_NO_TPU_ENVIRON)
    jax.config.update("jax_platforms", "cpu")
    options: dict[str, object] = {}
    if topology.size == 1:
        options["chips_per_host_bounds"] = (1, 1, 1)
    if topology.kind == "v4":
        options["chip_config_name"] = "megacore"
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=topology.name, **options).devices
    except Exception as error:  # its type depends on the version
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"libtpu does not know --topology={topology.name} ({reason}); add --simulate=true to plan without it"
        ) from error


def _simulated(topology: Topology) -> "Sequence[Device]":
    import jax

    if topology.size > MAX_SIMULATED:
        remedy = "install libtpu" if topology.platform == "tpu" else "take fewer"
        raise UserError(
            f"--topology={topology.name} has {topology.size} devices, and {MAX_SIMULATED} can be simulated; {remedy}"
        )
    try:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", topology.size)
    except RuntimeError:  # a notebook or a test has started the backend before
        pass
    simulated = jax.devices("cpu")
    if len(simulated) < topology.size:
        raise UserError(
            f"--topology={topology.name} needs {topology.size} simulated devices, and JAX runs with {len(simulated)}; "
            "start Python again"
        )
    return simulated[: topology.size]
