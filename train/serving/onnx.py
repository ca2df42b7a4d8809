"""A model as ONNX, through jax2onnx; onnxruntime reads it back. Both come with the extra `onnx`."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from tfm.params import PyTree
from tfm.scopes import alone
from train import UserError
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder
from train.serving.forward import Forward, differences, forward_of, write_facts

PROGRAM = "model.onnx"


def write(folder: RunFolder | HfFolder, params: PyTree, to: Path, length: int) -> dict[str, float]:
    """Writes the program with its weights, the tokenizer and model.json, and reads the program back.

    Its inputs are rows [batch, length] of tokens, or pictures, with any batch. Returns the largest differences from
    the model. Raises UserError without the extra, and for a model that the converter refuses.
    """
    try:
        import onnxruntime
        from jax2onnx import to_onnx
        from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as Unsupported
    except ImportError as error:
        remedy = 'pip install -e ".[onnx]" and then pip install --no-deps "jax2onnx>=0.17", or take --format=stablehlo'
        raise UserError(f"--format=onnx needs {error.name}; {remedy}") from error
    config = dataclasses.replace(folder.config.model, scan=False)
    forward = forward_of(config, params, length, folder.config.task.name)
    to.mkdir(parents=True)
    try:
        to_onnx(
            jax.vmap(_of_primitives(forward)),
            forward.batch("batch"),
            input_names=list(forward.inputs),
            output_names=[forward.output],
            model_name=folder.config.task.name,
            return_mode="file",
            output_path=str(to / PROGRAM),
        )
    except NotImplementedError as error:
        raise UserError(f"jax2onnx cannot convert this model: {error}; take --format=stablehlo") from error
    write_facts(folder, forward, to, program=PROGRAM)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    try:
        session = onnxruntime.InferenceSession(str(to / PROGRAM), options, providers=["CPUExecutionProvider"])
    except Unsupported as error:
        raise UserError(f"onnxruntime cannot run this model: {error}; take --format=stablehlo") from error
    return differences(forward, lambda inputs: session.run([forward.output], inputs)[0])


def _of_primitives(forward: Forward) -> Callable[..., jax.Array]:
    """The function of a row as the primitives that it is traced to.

    The converter replaces functions of jax.numpy by its own, which know fewer arguments.
    """
    traced = jax.make_jaxpr(lambda *rows: forward.function(forward.params, *rows))(*forward.inputs.values())
    return lambda *rows: _run(traced, rows)[0]


def _run(program: ClosedJaxpr, arguments: Sequence[Array]) -> list[Array]:
    """What a program computes, equation by equation, those of jitted functions too."""
    values: dict[Var, Array] = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
    values.update(zip(program.jaxpr.invars, arguments, strict=True))

    def read(name: Var | Literal) -> Array:
        return name.val if isinstance(name, Literal) else values[name]

    for equation in program.jaxpr.eqns:
        inputs = [read(name) for name in equation.invars]
        if equation.primitive.name in ("jit", "pjit"):
            outputs = _run(equation.params["jaxpr"], inputs)
        elif _chooses_booleans(equation):
            outputs = [_choice(*inputs)]
        elif equation.primitive.name == "gather" and inputs[0].dtype == bool:
            integers = jax.lax.convert_element_type(inputs[0], jnp.int32)
            outputs = [equation.primitive.bind(integers, inputs[1], **equation.params) != 0]
        else:
            part = alone(program.jaxpr, equation)
            outputs = jaxpr_as_fun(ClosedJaxpr(part, ()))(*map(read, part.invars))
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(name) for name in program.jaxpr.outvars]


def _chooses_booleans(equation: JaxprEqn) -> bool:
    """Whether an equation chooses between two arrays of booleans, which onnxruntime cannot do."""
    shapes = [cast(ShapedArray, name.aval) for name in equation.invars]
    is_choice = equation.primitive.name == "select_n" and len(shapes) == 3
    return is_choice and shapes[1].dtype == bool and shapes[0].shape == shapes[1].shape


def _choice(chosen: jax.Array, no: jax.Array, yes: jax.Array) -> jax.Array:
    """`jnp.where(chosen, yes, no)` of booleans, by logic."""
    either = jax.lax.bitwise_and(chosen, yes), jax.lax.bitwise_and(jax.lax.bitwise_not(chosen), no)
    return jax.lax.bitwise_or(*either)
