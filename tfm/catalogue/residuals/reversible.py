"""Reversible layers: a sublayer reads one of two streams and adds to the other (Gomez et al. 2017, eq. 6 and 8).

    first, second = second, first + f(norm(second))

Both are float32, so that subtraction gives back nearly what was added. What follows the last block is the mean of the
two, or one beside the other.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from tfm.catalogue.options.residuals import Reversible
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Residual
from tfm.norms import norm
from tfm.residuals import Norms, Outputs, Sublayer, SublayerOutput, Sublayers, branch, norms_specs

# Two streams float32 [B,T,D].
Streams = tuple[Array, Array]


def start(x: Array) -> Streams:
    """x [B,T,D] twice."""
    x = x.astype(jnp.float32)
    return x, x


def finish(options: Reversible, config: Config, streams: Streams) -> Array:
    """The mean of both streams [B,T,D], or both [B,T,o] of twice the width, in `config.dtype`."""
    if options.merge == "concatenated":
        return jnp.concatenate(streams, axis=-1).astype(config.dtype)
    return (0.5 * (streams[0] + streams[1])).astype(config.dtype)


def chain(call: LayerCall[Reversible, Norms, None], streams: Streams, sublayers: Sublayers) -> tuple[Streams, Outputs]:
    """Streams [B,T,D] -> streams [B,T,D]."""
    outputs = {}
    for name, sublayer in sublayers.items():
        first, second = streams
        y, outputs[name] = added(call.params, call.config, name, second, sublayer)
        streams = second, first + y
    return streams, outputs


def invert(
    names: list[str], pull: Callable[..., tuple[Array, Array]], streams: Streams, cotangents: Streams
) -> tuple[Streams, Streams]:
    """The streams before the sublayers, and their cotangents (Gomez et al. 2017, algorithm 1)."""
    for name in reversed(names):
        (first, second), (d_first, d_second) = streams, cotangents
        y, d_read = pull(name, first, d_second)
        streams, cotangents = (second - y, first), (d_second, d_first + d_read)
    return streams, cotangents


def added(norms: Norms, config: Config, name: str, x: Array, sublayer: Sublayer) -> tuple[Array, SublayerOutput]:
    """What a sublayer adds for a stream x [B,T,D], float32 [B,T,D], and its output."""
    y, output = branch(sublayer, config, norm(config, getattr(norms, name), x).astype(config.dtype), x)
    return y.astype(jnp.float32), output


RESIDUAL = Residual(norms_specs, chain, final_norm=True)
