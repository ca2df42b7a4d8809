"""What no memory here can hold, refused before any of it is allocated.

The bounds are far below the real needs: whether a run fits is what `train.plan` estimates.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import jax
from jax.sharding import Mesh

import tfm
from tfm.config.model import Config
from tfm.params import PyTree
from train import OutOfMemoryError, UserError
from train.devices import cpu
from train.devices.mesh import available_devices
from train.devices.specs import memory_bytes
from train.screens.console import human_bytes

# Integers of a batch for each of its tokens, such as tokens, positions, segments and targets.
_FIELDS = 4

# Bytes of an integer, and of a number.
_INTEGER, _NUMBER = 4, 4


def device_bytes(devices: Sequence[jax.Device] = ()) -> float:
    """Bytes of memory of devices, by default of all; of CPUs, those of the machine; infinity where they are not
    known."""
    devices = devices or available_devices()
    if devices[0].platform == "cpu":
        return cpu.memory_bytes() * jax.process_count()
    return len(devices) * (memory_bytes(devices[0]) or math.inf)


def check_parameters(specs: PyTree) -> None:
    """Raises OutOfMemoryError where the parameters of a spec tree, and gradients, are more than memory can hold."""
    leaves = jax.tree.leaves(specs)
    sizes = [(math.prod(spec.shape), jax.numpy.dtype(spec.dtype).itemsize * (1 + spec.trained)) for spec in leaves]
    needed, capacity = sum(count * size for count, size in sizes), device_bytes()
    if needed > capacity:
        raise OutOfMemoryError(
            f"a model of {sum(count for count, _ in sizes):,} parameters needs {human_bytes(needed)} or more to train, "
            f"and there are {human_bytes(capacity)}; take a smaller --model.width, --model.ffn or --model.layers, "
            "or more devices: python -m train.plan says how many"
        )


def mesh_for_weights(specs: PyTree, path: Path, mesh: Mesh | None = None) -> Mesh:
    """The mesh for the parameters in a folder, by default of one device.

    Raises OutOfMemoryError where they are more than its devices can hold.
    """
    mesh = mesh or tfm.make_mesh(devices=available_devices()[:1])
    leaves = jax.tree.leaves(specs)
    needed = sum(math.prod(spec.shape) * jax.numpy.dtype(spec.dtype).itemsize for spec in leaves)
    capacity = device_bytes(list(mesh.devices.flat))
    if needed > capacity:
        raise OutOfMemoryError(
            f"{path} describes a model of {tfm.count_params(leaves):,} parameters, which need {human_bytes(needed)}, "
            f"and there are {human_bytes(capacity)}; take a smaller model, or devices with more memory"
        )
    return mesh


def check_tokens(model: Config, tokens: int, parts: int = 1, flags: str = "--batch") -> None:
    """Raises OutOfMemoryError where the `tokens` of a batch, computed in `parts`, are more than memory can hold.

    The error advises to take smaller ones of the `flags`.
    """
    states, fields = _NUMBER * model.width * tokens // parts, _INTEGER * _FIELDS * tokens
    if fields > cpu.memory_bytes() or states > device_bytes():
        raise OutOfMemoryError(
            f"a batch of {tokens:,} tokens needs {human_bytes(max(states, fields))} or more, and there "
            f"are {human_bytes(device_bytes())}; take a smaller {flags}"
        )


def check_decoding(model: tfm.CausalLM, config: Config, rows: int, slots: int, beams: int = 1) -> None:
    """Raises UserError where the decode states of texts [rows * beams, slots] are more than memory holds.

    States are computed as shapes only, and only where the keys and values of every layer would be too many.
    """
    sizes = config.sizes
    texts = rows * beams * (2 * _INTEGER * slots + _NUMBER * sizes["V"])
    keys_and_values = 2 * _NUMBER * rows * beams * slots * config.layers * sizes["K"] * sizes["H"]
    if texts + keys_and_values <= device_bytes():
        return
    starts = jax.ShapeDtypeStruct((rows,), jax.numpy.int32)
    tokens = jax.ShapeDtypeStruct((rows, 1), jax.numpy.int32)

    def states(model: tfm.CausalLM, tokens: jax.Array, starts: jax.Array) -> PyTree:
        return tfm.prefill(model.decoder, config, tokens, starts, slots, model.memory)[1].states

    leaves = jax.tree.leaves(jax.eval_shape(states, model, tokens, starts))
    needed = texts + beams * sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
    if needed > device_bytes():
        raise UserError(
            f"{rows * beams:,} texts of {slots:,} tokens at a time need {human_bytes(needed)} or more, and there are "
            f"{human_bytes(device_bytes())}; take a smaller --batch, fewer --beams, or fewer --max-new-tokens"
        )
