"""Residual connections: how sublayers join the stream. One file a scheme, named like its tag in
`tfm.config.residuals`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
from flax import struct
from jax import Array

from tfm import variants
from tfm.config.model import Config
from tfm.config.residuals import Residual as ResidualOptions
from tfm.norms import Norm, norm_specs
from tfm.ops import Linear, broadcast_param, drop_rows, dropout
from tfm.params import constant_spec, xavier
from tfm.sharding import gather_sequence, shard_axis, spec_of

# The sublayers of a block, in order; only decoders with a memory have cross-attention.
SUBLAYERS = ("mixer", "cross", "feed_forward")


@struct.dataclass
class Norms:
    """A norm for each sublayer; None where it has none. By the name of a sublayer, the vector [D] that scales what it
    adds, if any."""

    mixer: Norm | None = None
    cross: Norm | None = None
    feed_forward: Norm | None = None
    scales: dict[str, Any] | None = None


class Sublayer(NamedTuple):
    """A sublayer: a function from x [B,T,D] to y [B,T,D] and an output, the key of the dropout of y, and the rate at
    which examples skip it."""

    function: Callable[[Array], tuple[Array, Any]]
    key: Array | None
    drop_path: Array | None = None


class Reverse(NamedTuple):
    """How a backward pass gets what a block has read out of what it has returned.

    evaluate: (params, options, config, name of a sublayer, x, sublayer) -> what the sublayer adds for a stream x
    invert: (names of the sublayers, pull, streams, cotangents) -> the streams that the block has read, and their
        cotangents; `pull(name, x, cotangent)` -> what a sublayer adds for x, and the cotangent of x
    """

    evaluate: Callable[..., Array]
    invert: Callable[..., tuple[Any, Any]]


class Profile(NamedTuple):
    """One pass over a batch without dropout.

    x: what the first block has read [B,T,D]
    branches: for each layer, what its sublayers have added to the stream [B,T,D], by name
    specs: for each layer, the spec tree of its block
    """

    x: Array
    branches: list[dict[str, Array]]
    specs: list[Any]


def one_stream(options: ResidualOptions, config: Config, x: Array) -> Array:
    """The stream as it is."""
    return x


class Residual(NamedTuple):
    """The functions of one scheme, as a record.

    specs: (options, config, names of the sublayers) -> the spec tree of one block
    chain: (params, options, config, x, sublayers by name) -> x and the outputs of the sublayers by name
    final_norm: a norm follows the last block
    sublayers: those that a block has
    rescale: (specs of a block, options, config) -> the same with other initializers
    rescale_embed: (specs of the embeddings, options, config) -> the same with other initializers
    calibrate: None, or (blocks, options, config, profile) -> the parameters of all blocks, set by a batch: a list with
        an element a layer, and the `Profile` of the same layers (`tfm.calibrate`)
    start: (options, config, x) -> what the first block reads
    finish: (options, config, what a block returns) -> x [B,T,D], or [B,T,o] (`output_axis`)
    reverse: None, or how the backward pass does without stored values
    """

    specs: Callable[..., Any]
    chain: Callable[..., tuple[Any, dict[str, Any]]]
    final_norm: bool
    sublayers: tuple[str, ...] = SUBLAYERS
    rescale: Callable[..., Any] = variants.unchanged
    rescale_embed: Callable[..., Any] = variants.unchanged
    calibrate: Callable[..., Any] | None = None
    start: Callable[..., Any] = one_stream
    finish: Callable[..., Array] = one_stream
    reverse: Reverse | None = None


def residual_of(options: ResidualOptions) -> Residual:
    """The functions of the scheme that options describe."""
    return variants.load(options).RESIDUAL


def has_final_norm(config: Config) -> bool:
    """Whether a norm follows the last block; an option of the scheme may leave it out."""
    return residual_of(config.residual).final_norm and getattr(config.residual, "final_norm", True)


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


def sums(
    params: Any, options: ResidualOptions, config: Config, x: Array, sublayers: Mapping[str, Sublayer]
) -> tuple[Array, dict[str, Any]]:
    """x [B,T,D] -> x + f(x) [B,T,D] for one sublayer f after the other, without norms; and their outputs."""
    outputs = {}
    for name, sublayer in sublayers.items():
        y, outputs[name] = branch(sublayer, config, x, x)
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
