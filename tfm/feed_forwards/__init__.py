"""The feed-forward layer that every token goes through by itself."""

from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.interfaces import AttentionContext, FeedForwardLayer, LayerCall
from tfm.ops import GATES, Linear, activation, dropout, linear, linear_specs
from tfm.options.choices import Options


@struct.dataclass
class FeedForward:
    """Two linear maps, `up` [D,F] and `down` [F,D]; `gate` [D,F] is a third one that only the gated variants have."""

    up: Linear
    gate: Linear | None
    down: Linear


def feed_forward_specs(config: Config) -> FeedForward:
    """The spec tree of a feed-forward layer: `up` [D,F], `down` [F,D], and `gate` [D,F] of a gated activation."""
    up = linear_specs(config, "D", "F", branch=True)
    return FeedForward(
        up=up, gate=up if config.activation in GATES else None, down=linear_specs(config, "F", "D", branch=True)
    )


def feed_forward(layer: FeedForward, config: Config, x: Array, key: Array | None = None) -> Array:
    """x [B,T,D] -> [B,T,D]: down(act(up(x))) (Vaswani et al. 2017, eq. 2), or down(act(gate(x)) * up(x)) (Shazeer 2020,
    eq. 6). A key drops what `down` reads, at the rate `config.ffn_dropout`."""
    act = activation(config)
    hidden = linear(layer.up, "BTD,DF->BTF", x)
    hidden = act(hidden) if layer.gate is None else act(linear(layer.gate, "BTD,DF->BTF", x)) * hidden
    return linear(layer.down, "BTF,FD->BTD", dropout(hidden, config.ffn_dropout, key))


def specs(options: Options, config: Config) -> FeedForward:
    """See `feed_forward_specs`."""
    return feed_forward_specs(config)


def forward(call: LayerCall[Options, FeedForward, None], x: Array, context: AttentionContext) -> Array:
    """See `feed_forward`."""
    return feed_forward(call.params, call.config, x, call.key)


SINGLE = FeedForwardLayer(specs, forward)
