"""Sums without norms, and linear maps that start as Xavier's: what schemes that scale their initializers share."""

from dataclasses import replace

import jax
from jax import Array

from tfm.interfaces import LayerCall
from tfm.ops import Linear
from tfm.options.choices import Options
from tfm.params import ArraySpec, PyTree, xavier
from tfm.residuals import Outputs, Sublayers, branch


def sums(call: LayerCall[Options, object, None], x: Array, sublayers: Sublayers) -> tuple[Array, Outputs]:
    """x [B,T,D] -> x + f(x) [B,T,D] for one sublayer f after the other, without norms; and their outputs."""
    outputs = {}
    for name, sublayer in sublayers.items():
        y, outputs[name] = branch(sublayer, call.config, x, x)
        x = x + y
    return x, outputs


def xavier_branches(specs: PyTree, gain: float = 1.0) -> PyTree:
    """The specs of a block whose linear maps start as Xavier's; those that scale what a sublayer adds, `gain` times as
    large (`Spec.branch`)."""

    def start(node: PyTree) -> PyTree:
        if isinstance(node, Linear):
            spec: ArraySpec = node.kernel
            kernel: ArraySpec = xavier(spec, gain if spec.branch else 1.0)
            return replace(node, kernel=kernel)
        return xavier(node, gain) if node.branch else node

    return jax.tree.map(start, specs, is_leaf=lambda node: isinstance(node, Linear))
