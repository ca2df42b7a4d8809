"""Residual connections: how sublayers join the stream. One file a scheme, named like its tag in
`tfm.config.residuals`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.interfaces import LayerCall, Sublayer, Sublayers
from tfm.norms import Norm, norm_specs
from tfm.ops import Linear, broadcast_param, drop_rows, dropout
from tfm.options.choices import Options
from tfm.params import constant_spec, xavier
from tfm.sharding import gather_sequence, shard_axis, spec_of


@struct.dataclass
class Norms:
    """A norm for each sublayer; None where it has none. By the name of a sublayer, the vector [D] that scales what it
    adds, if any."""

    mixer: Norm | None = None
    cross: Norm | None = None
    feed_forward: Norm | None = None
    scales: dict[str, Any] | None = None


def output_axis(config: Config) -> tuple[str, dict[str, Any]]:
    """The letter of the width of what follows the last block, and the size of one that is no shared letter."""
    streams = config.residual.streams
    return ("D", {}) if streams == 1 else ("o", {"o": streams * config.width})


def sublayer_norms(config: Config, names: Mapping[str, Any] | tuple[str, ...]) -> Norms:
    """The spec tree of a norm for each sublayer."""
    norms: dict[str, Any] = {name: norm_specs(config) for name in names}
    return Norms(**norms)


def scales(start: float | None, config: Config, names: tuple[str, ...]) -> dict[str, Any] | None:
    """The spec tree of a vector [D] for each sublayer that starts from `start` (`layer_scale`); None without one."""
    return None if start is None else {name: constant_spec(config, "D", start) for name in names}


def scaled(norms: Norms, name: str, y: Array) -> Array:
    """y [B,T,D] of the sublayer `name`, times its vector."""
    return y if norms.scales is None else broadcast_param(norms.scales[name], y) * y


def branch(sublayer: Sublayer, config: Config, read: Array, stream: Array) -> tuple[Array, Any]:
    """read [B,T,D] -> what a sublayer adds to the stream [B,T,D], after dropout and stochastic depth, and its
    output."""
    y, output = sublayer.function(gather_sequence(read))
    y = dropout(shard_axis(y, spec_of(stream)[1]), config.dropout, sublayer.key)
    return drop_rows(y, sublayer.drop_path, sublayer.key), output


def sums(call: LayerCall[Options, Any, None], x: Array, sublayers: Sublayers) -> tuple[Array, dict[str, Any]]:
    """x [B,T,D] -> x + f(x) [B,T,D] for one sublayer f after the other, without norms; and their outputs."""
    outputs = {}
    for name, sublayer in sublayers.items():
        y, outputs[name] = branch(sublayer, call.config, x, x)
        x = x + y
    return x, outputs


def xavier_branches(specs: Any, gain: float = 1.0) -> Any:
    """The specs of a block whose linear maps start as Xavier's; those that scale what a sublayer adds, `gain` times as
    large (`Spec.branch`)."""

    def start(node: Any) -> Any:
        if isinstance(node, Linear):
            spec: Any = node.kernel
            kernel: Any = xavier(spec, gain if spec.branch else 1.0)
            return replace(node, kernel=kernel)
        return xavier(node, gain) if node.branch else node

    return jax.tree.map(start, specs, is_leaf=lambda node: isinstance(node, Linear))
