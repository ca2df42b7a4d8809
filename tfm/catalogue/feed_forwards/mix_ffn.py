"""Two linear maps with a depth-wise convolution and an activation between them (Mix-FFN of SegFormer: Xie et al. 2021,
eq. 3)."""

from flax import struct
from jax import Array

from tfm.catalogue.grid import DepthwiseConvolution, check_whole, convolve, depthwise_specs
from tfm.catalogue.options.feed_forwards import MixFfn
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, FeedForwardLayer, LayerCall
from tfm.ops import Linear, activation, broadcast_param, dropout, linear, linear_specs


@struct.dataclass
class MixedFeedForward:
    """The maps `up` [D,F] and `down` [F,D], and the convolution of F channels between them."""

    up: Linear
    convolution: DepthwiseConvolution
    down: Linear


def specs(options: MixFfn, config: Config) -> MixedFeedForward:
    """The spec tree of one layer."""
    return MixedFeedForward(
        up=linear_specs(config, "D", "F", branch=True),
        convolution=depthwise_specs(config, "F", options.kernel),
        down=linear_specs(config, "F", "D", branch=True),
    )


def forward(call: LayerCall[MixFfn, MixedFeedForward, None], x: Array, context: AttentionContext) -> Array:
    """x [B,T,D] of a grid -> [B,T,D]. Raises VariantError for causality and masks."""
    check_whole(call, context)
    layer, config = call.params, call.config
    assert config.grid is not None, "the options see to it that there is a grid"
    hidden = linear(layer.up, "BTD,DF->BTF", x)
    places = convolve(layer.convolution.weights, hidden, config.grid)
    hidden = activation(config)(places + broadcast_param(layer.convolution.bias, places))
    return linear(layer.down, "BTF,FD->BTD", dropout(hidden, config.ffn_dropout, call.key))


FEED_FORWARD = FeedForwardLayer(specs, forward)
