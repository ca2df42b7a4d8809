"""A model as StableHLO: what `jax.export` reads back, with jax and numpy alone, on CPU, GPU and TPU."""

from pathlib import Path

import jax
import numpy as np
from jax import export
from jax.tree_util import KeyPath

from tfm.params import PyTree
from train import UserError
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder
from train.serving.forward import Forward, differences, forward_of, write_facts

PROGRAM = "model.stablehlo"
WEIGHTS = "weights.npz"
PLATFORMS = ("cpu", "cuda", "tpu")


def write(folder: RunFolder | HfFolder, params: PyTree, to: Path, length: int) -> dict[str, float]:
    """Writes the program, its weights, the tokenizer and model.json, and reads the first two back.

    The program takes a dictionary of weights and the inputs: rows [B, length] of tokens, or pictures, with any B.
    Returns the largest differences from the model. Raises UserError without the extra.
    """
    try:
        import flatbuffers  # noqa: F401  # jax.export needs it, and does not ask for it
    except ImportError as error:
        raise UserError('--format=stablehlo needs flatbuffers; pip install -e ".[stablehlo]"') from error
    forward = forward_of(folder.config.model, params, length, folder.config.task.name)
    weights = {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(forward.params)}
    to.mkdir(parents=True)
    (to / PROGRAM).write_bytes(_export(forward, weights))
    arrays = {name: np.asarray(leaf) for name, leaf in weights.items()}
    np.savez(to / WEIGHTS, allow_pickle=False, **arrays)
    write_facts(folder, forward, to, program=PROGRAM, weights=WEIGHTS, platforms=list(PLATFORMS))
    program = export.deserialize(bytearray((to / PROGRAM).read_bytes()))
    with np.load(to / WEIGHTS) as file:
        read_weights = dict(file)
    return differences(forward, lambda inputs: program.call(read_weights, *inputs.values()))


def _export(forward: Forward, weights: dict[str, jax.Array]) -> bytes:
    """The program, for every platform and batch size."""
    structure = jax.tree.structure(forward.params)

    def function(weights, *inputs):
        params = jax.tree.unflatten(structure, [weights[name] for name in names])
        return forward.batched(params, *inputs)

    names = list(weights)
    (batch,) = export.symbolic_shape("batch")
    shapes = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in weights.items()}
    program = export.export(jax.jit(function), platforms=PLATFORMS)(shapes, *forward.batch(batch))
    return bytes(program.serialize())


def _name(path: KeyPath) -> str:
    """The name of a weight, such as encoder.embed.tokens."""
    return jax.tree_util.keystr(path, simple=True, separator=".")
