"""Residual connections: how sublayers join the stream. One file a scheme, named like its tag in
`tfm.config.residuals`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flax import struct
from jax import Array

from tfm import variants
from tfm.config.model import Config
from tfm.config.residuals import Residual as ResidualOptions
from tfm.ops import Norm, dropout, norm_specs
from tfm.sharding import gather_sequence, shard_axis, spec_of

# The sublayers of a block, in order; only decoders with a memory have cross-attention.
SUBLAYERS = ("mixer", "cross", "feed_forward")


@struct.dataclass
class Norms:
    """A norm for each sublayer; None where it has none."""

    mixer: Norm | None = None
    cross: Norm | None = None
    feed_forward: Norm | None = None


class Sublayer(NamedTuple):
    """A sublayer: a function from x [B,T,D] to y [B,T,D] and an output, and the key of the dropout of y."""

    function: Callable[[Array], tuple[Array, Any]]
    key: Array | None


class Residual(NamedTuple):
    """The functions of one scheme, as a record.

    specs: (options, config, names of the sublayers) -> the spec tree of one block
    chain: (params, options, config, x, sublayers by name) -> x and the outputs of the sublayers by name
    final_norm: a norm follows the last block
    rescale: (specs of a block or of embeddings, options, config) -> the same with other initializers
    calibrate: None, or (parameters, options, config, branches) -> new parameters: lists with an element a layer, of
        which branches are what each sublayer adds to the stream [B,T,D] on a batch, by name (`tfm.calibrate`)
    """

    specs: Callable[..., Any]
    chain: Callable[..., tuple[Array, dict[str, Any]]]
    final_norm: bool
    rescale: Callable[..., Any] = variants.unchanged
    calibrate: Callable[..., Any] | None = None


def residual_of(options: ResidualOptions) -> Residual:
    """The functions of the scheme that options describe."""
    return variants.load(options).RESIDUAL


def sublayer_norms(config: Config, names: Mapping[str, Any] | tuple[str, ...]) -> Norms:
    """The spec tree of a norm for each sublayer."""
    return Norms(**{name: norm_specs(config) for name in names})


def branch(sublayer: Sublayer, config: Config, read: Array, stream: Array) -> tuple[Array, Any]:
    """read [B,T,D] -> what a sublayer adds to the stream [B,T,D], after dropout, and its output."""
    y, output = sublayer.function(gather_sequence(read))
    return dropout(shard_axis(y, spec_of(stream)[1]), config.dropout, sublayer.key), output
