"""A model as ONNX, through jax2onnx; onnxruntime reads it back. Both come with the extra `onnx`."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

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
        from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as Unsupported
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
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    try:
        session = onnxruntime.InferenceSession(str(to / PROGRAM), options, providers=["CPUExecutionProvider"])
    except Unsupported as error:
        raise UserError(f"onnxruntime cannot run this model: {error}; take --format=stablehlo") from error
    return differences(forward, length, lambda inputs: session.run([forward.output], inputs)[0])


def _of_primitives(forward: Forward, length: int) -> Callable[..., jax.Array]:
    """The function of a row as the primitives that it is traced to.

    The converter replaces functions of jax.numpy by its own, which know fewer arguments.
    """
    rows = [jax.ShapeDtypeStruct((length,), jnp.int32) for _ in forward.inputs]
    traced = jax.make_jaxpr(lambda *rows: forward.function(forward.params, *rows))(*rows)
    return lambda *rows: _run(traced, rows)[0]


def _run(program: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    """What a program computes, equation by equation, those of jitted functions too."""
    values: dict[Any, Any] = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
    values.update(zip(program.jaxpr.invars, arguments, strict=True))

    def read(name: Any) -> Any:
        return name.val if isinstance(name, Literal) else values[name]

    for equation in program.jaxpr.eqns:
        outputs = _compute(equation, [read(name) for name in equation.invars])
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(name) for name in program.jaxpr.outvars]


def _compute(equation: JaxprEqn, inputs: list[Any]) -> Sequence[Any]:
    """The results of an equation. A choice of booleans is logic: onnxruntime has no other."""
    primitive = equation.primitive
    if primitive.name in ("jit", "pjit"):
        return _run(equation.params["jaxpr"], inputs)
    output: Any = equation.outvars[0].aval
    if primitive.name == "select_n" and output.dtype == bool and len(inputs) == 3:
        chosen, no, yes = (value if jnp.ndim(value) else jax.lax.broadcast(value, output.shape) for value in inputs)
        return [
            jax.lax.bitwise_or(jax.lax.bitwise_and(chosen, yes), jax.lax.bitwise_and(jax.lax.bitwise_not(chosen), no))
        ]
    functions, params = primitive.get_bind_params(equation.params)
    outputs = primitive.bind(*functions, *inputs, **params)
    return outputs if primitive.multiple_results else [outputs]
