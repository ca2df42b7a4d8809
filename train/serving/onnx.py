"""A model as ONNX, through jax2onnx; onnxruntime reads it back. Both come with the extra `onnx`."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from train import UserError
from train.serving.forward import differences, forward_of, write_facts

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
            lambda *inputs: forward.batched(forward.params, *inputs),
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
