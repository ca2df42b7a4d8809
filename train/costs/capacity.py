"""What no memory here can hold, refused before any of it is allocated.

The bounds are far below the real needs: whether a run fits is what `train.plan` estimates.
"""

import dataclasses
import math
from collections.abc import Set

import jax

from tfm.config.mixers import Softmax
from tfm.config.model import Config
from train import UserError, tasks
from train.costs.advice import human_bytes
from train.devices import cpu
from train.devices.mesh import available_devices
from train.devices.specs import memory_bytes
from train.settings.schema import Run
from train.tasks.tuning import specs_of

# Integers of a batch for each of its tokens, such as tokens, positions, segments and targets.
_FIELDS = 4


def device_bytes() -> float:
    """Bytes of memory of all devices; of CPUs, those of the machine; infinity where they are not known."""
    devices = available_devices()
    if devices[0].platform == "cpu":
        return cpu.memory_bytes() * jax.process_count()
    return len(devices) * (memory_bytes(devices[0]) or math.inf)


def check_run(run: Run, explicit: Set[str]) -> None:
    """Raises UserError where the parameters of a run, or the tokens of its batch, are more than memory can hold.

    Without a vocabulary among the `explicit` names, the data decide it: the smallest one is counted.
    """
    model = run.model if "model.vocab" in explicit else dataclasses.replace(run.model, vocab=1)
    specs = jax.tree.leaves(specs_of(tasks.find(run.task.name), dataclasses.replace(run, model=model)))
    sizes = [(math.prod(spec.shape), jax.numpy.dtype(spec.dtype).itemsize * (1 + spec.trained)) for spec in specs]
    needed, capacity = sum(count * size for count, size in sizes), device_bytes()
    if needed > capacity:
        raise UserError(
            f"a model of {sum(count for count, _ in sizes):,} parameters needs {human_bytes(needed)} or more to train, "
            f"and there are {human_bytes(capacity)}; take a smaller --model.width, --model.ffn or --model.layers"
        )
    tokens = max(run.batch.tokens or 0, run.batch.unit * run.batch.length)
    check_tokens(run.model, tokens, run.batch.accumulate, "--batch.size or --batch.length")


def check_tokens(model: Config, tokens: int, parts: int = 1, flags: str = "--batch") -> None:
    """Raises UserError where a batch of so many tokens, computed in `parts`, is more than memory can hold.

    The error advises to take smaller ones of the `flags`.
    """
    states = 4 * model.width * tokens // parts
    if 4 * _FIELDS * tokens > cpu.memory_bytes() or states > device_bytes():
        raise UserError(
            f"a batch of {tokens:,} tokens needs {human_bytes(max(states, 4 * _FIELDS * tokens))} or more, and there "
            f"are {human_bytes(device_bytes())}; take a smaller {flags}"
        )


def check_decoding(model: Config, rows: int, slots: int) -> None:
    """Raises UserError where the keys and values of texts [rows, slots] are more than memory holds."""
    sizes = model.sizes
    layers = sum(isinstance(kind.mixer, Softmax) for kind in model.kinds) and model.layers
    needed = rows * slots * (8 + 4 * 2 * layers * sizes["K"] * sizes["H"]) + 4 * rows * sizes["V"]
    if needed > device_bytes():
        raise UserError(
            f"{rows:,} texts of {slots:,} tokens at a time need {human_bytes(needed)} or more, and there are "
            f"{human_bytes(device_bytes())}; take a smaller --batch, fewer --beams, or fewer --max-new-tokens"
        )
