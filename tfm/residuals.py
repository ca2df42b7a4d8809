"""Residual connections: how sublayers join the stream, with norms behind the sums or before the sublayers."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from flax import struct
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from tfm.config.model import Config
from tfm.config.residuals import PostNorm, PreNorm
from tfm.interfaces import LayerCall, MixerOutput, Residual
from tfm.norms import Norm, fork, norm, norm_specs
from tfm.ops import broadcast_param, drop_rows, dropout
from tfm.options.choices import Options
from tfm.params import constant_spec
from tfm.sharding import gather_sequence, shard_axis, spec_of

# The sublayers of a block, in order; only decoders with a memory have cross-attention.
SUBLAYERS = ("mixer", "cross", "feed_forward")


# The name of what a sublayer adds, in programs.
BRANCH = "branch"

# What a sublayer returns beside what it adds: a `MixerOutput`, the attention weights of a cross-attention, or None.
SublayerOutput: TypeAlias = MixerOutput | Array | None

Outputs: TypeAlias = dict[str, SublayerOutput]  # by the name of the sublayer


class Sublayer(NamedTuple):
    """A sublayer: a function from x [B,T,D] to y [B,T,D] and an output, the key of the dropout of y, and the rate at
    which examples skip it."""

    function: Callable[[Array], tuple[Array, SublayerOutput]]
    key: Array | None
    drop_path: Array | None = None


Sublayers = Mapping[str, Sublayer]  # by name, in order


@struct.dataclass
class Norms:
    """A norm for each sublayer; None where it has none. By the name of a sublayer, the vector [D] that scales what it
    adds, if any."""

    mixer: Norm | None = None
    cross: Norm | None = None
    feed_forward: Norm | None = None
    scales: dict[str, Array] | None = None


def norms_specs(options: Options, config: Config, names: tuple[str, ...]) -> Norms:
    """The spec tree of a norm for each sublayer."""
    norms: dict[str, Any] = dict.fromkeys(names, norm_specs(config))
    return Norms(**norms)


def branch(sublayer: Sublayer, config: Config, read: Array, stream: Array) -> tuple[Array, SublayerOutput]:
    """read [B,T,D] -> what a sublayer adds to the stream [B,T,D], after dropout and stochastic depth, and its
    output."""
    y, output = sublayer.function(gather_sequence(read))
    y = dropout(shard_axis(y, spec_of(stream)[1]), config.dropout, sublayer.key)
    return checkpoint_name(drop_rows(y, sublayer.drop_path, sublayer.key), BRANCH), output


def post_chain(call: LayerCall[PostNorm, Norms, None], x: Array, sublayers: Sublayers) -> tuple[Array, Outputs]:
    """x [B,T,D] -> [B,T,D]: norm(x + f(x)) for each sublayer f, as in the first Transformer and BERT (Vaswani et al.
    2017, section 3.1)."""
    outputs = {}
    for name, sublayer in sublayers.items():
        y, outputs[name] = branch(sublayer, call.config, x, x)
        x = norm(call.config, getattr(call.params, name), x + y)
    return x, outputs


def pre_specs(options: PreNorm, config: Config, names: tuple[str, ...]) -> Norms:
    """A norm for each sublayer, perhaps not for the mixer, and perhaps a scale."""
    norms = norms_specs(options, config, tuple(name for name in names if options.mixer_norm or name != "mixer"))
    return replace(norms, scales=scales(options.layer_scale, config, names))


def pre_chain(call: LayerCall[PreNorm, Norms, None], x: Array, sublayers: Sublayers) -> tuple[Array, Outputs]:
    """x [B,T,D] -> [B,T,D]: x + f(norm(x)) for each sublayer f, as in GPT-2 and most models since (Xiong et al.
    2020)."""
    outputs = {}
    for name, sublayer in sublayers.items():
        params = getattr(call.params, name)
        x, read = (x, x) if params is None else fork(call.config, params, x)
        y, outputs[name] = branch(sublayer, call.config, read, x)
        x = x + scaled(call.params, name, y)
    return x, outputs


def scales(start: float | None, config: Config, names: tuple[str, ...]) -> dict[str, Any] | None:
    """The spec tree of a vector [D] for each sublayer that starts from `start` (`layer_scale`); None without one."""
    return None if start is None else {name: constant_spec(config, "D", start) for name in names}


def scaled(norms: Norms, name: str, y: Array) -> Array:
    """y [B,T,D] of the sublayer `name`, times its vector."""
    return y if norms.scales is None else broadcast_param(norms.scales[name], y) * y


def output_axis(config: Config) -> tuple[str, dict[str, Any]]:
    """The letter of the width of what follows the last block, and the size of one that is no shared letter."""
    streams = getattr(config.residual, "streams", 1)
    return ("D", {}) if streams == 1 else ("o", {"o": streams * config.width})


POST = Residual(norms_specs, post_chain, final_norm=False)
PRE = Residual(pre_specs, pre_chain, final_norm=True)
