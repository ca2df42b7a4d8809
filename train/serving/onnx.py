"""A model as ONNX, through jax2onnx; onnxruntime reads it back. Both come with the extra `onnx`."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun

from train import UserError
from train.serving.forward import Forward, differences, forward_of, write_facts

PROGRAM = "model.onnx"


def write(folder: Any, params: Any, to: Path, length: int) -> dict[str, float]:
    """Writes the program with its weights, the tokenizer and model.json, and reads the program back.

    Its inputs are [batch, length], with any batch. Returns the largest differences from the model. Raises UserError
    without the extra, and for a model that the converter refuses.
    """
    try:
        import onnxruntime
        from jax2onnx import to_onnx
    except ImportError as error:
        raise UserError(
            f"--format=onnx needs {error.name}; pip install 'tfm[onnx]', or take --format=stablehlo"
        ) from error
    config = dataclasses.replace(folder.config.model, scan=False)
    forward = forward_of(config, params)
    to.mkdir(parents=True)
    shapes = [jax.ShapeDtypeStruct(("batch", length), jnp.int32) for _ in forward.inputs]
    try:
        to_onnx(
            jax.vmap(_of_primitives(forward, length)),
            shapes,
            input_names=list(forward.inputs),
            output_names=[forward.output],
            model_name=folder.config.task.name,
            return_mode="file",
            output_path=str(to / PROGRAM),
        )
    except NotImplementedError as error:
        raise UserError(f"jax2onnx cannot convert this model: {error}; take --format=stablehlo") from error
    write_facts(folder, forward, length, to, program=PROGRAM)
    session = onnxruntime.InferenceSession(str(to / PROGRAM), providers=["CPUExecutionProvider"])
    return differences(forward, length, lambda inputs: session.run([forward.output], inputs)[0])


def _of_primitives(forward: Forward, length: int) -> Callable[..., jax.Array]:
    """The function of a row as the primitives that it is traced to: the converter replaces functions of jax.numpy by
    its own, which know fewer arguments."""
    rows = [jax.ShapeDtypeStruct((length,), jnp.int32) for _ in forward.inputs]
    traced = jax.make_jaxpr(lambda *rows: forward.function(forward.params, *rows))(*rows)
    return lambda *rows: jaxpr_as_fun(traced)(*rows)[0]
