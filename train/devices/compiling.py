"""Options of compilers that change no result, and programs that read texts with them."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AbstractMesh, use_abstract_mesh

# XLA's own products and sums on a CPU instead of YNNPACK's (M13: 0.88 to 0.99 of a step; M66), which
# alone has products of bfloat16 (M50).
YNNPACK = "xla_cpu_experimental_ynn_fusion_type"


def jit_reading(*static: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator like `jax.jit` for function(params, model, ...), a forward pass, with the options of its platform.

    static: the places of the arguments that are static, `model` among them; it names the `dtype` of products
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.cache
        def jitted(dtype: str) -> Callable[..., Any]:
            has_option = jax.default_backend() == "cpu" and dtype == "float32" and is_known(YNNPACK, "")
            return jax.jit(function, static_argnums=static, compiler_options={YNNPACK: ""} if has_option else None)

        @functools.wraps(function)
        def call(params: Any, model: Any, *arguments: Any) -> Any:
            if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((params, arguments))):
                return function(params, model, *arguments)  # a part of a program, which has the options
            return jitted(model.dtype)(params, model, *arguments)

        return call

    return decorate


@functools.cache
def is_known(name: str, value: str) -> bool:
    """Whether this XLA has an option."""
    try:
        with use_abstract_mesh(AbstractMesh((), ())):  # compiled for this machine, whatever a plan is for
            jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
