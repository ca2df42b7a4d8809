"""What layers of experts share: their parameters, and what experts make of the tokens in their slots."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import PartitionSpec, reshard

from tfm.catalogue.options.feed_forwards import ExpertOptions
from tfm.config.model import Config
from tfm.feed_forwards import FeedForward, feed_forward, feed_forward_specs
from tfm.ops import GATES, Linear, activation, einsum, linear_specs
from tfm.params import bias_spec, weight_spec
from tfm.sharding import mesh_axes, spec_of, unshard_fsdp

EXPERT_AXIS = "expert"


@struct.dataclass
class ExpertParams:
    """Of X experts: `up` and `gate` [X,D,F], `down` [X,F,D], and biases [X,F] and [X,D], where the model has some.

    shared: the experts that all tokens go through, as one dense layer; None: there are none
    """

    router: Linear
    up: Array
    gate: Array | None
    down: Array
    up_bias: Array | None
    gate_bias: Array | None
    down_bias: Array | None
    shared: FeedForward | None


def expert_specs(options: ExpertOptions, config: Config) -> ExpertParams:
    """The spec tree of a router [D,X] and of experts."""
    count, is_gated = options.experts, config.activation in GATES
    up = weight_spec(config, "XDF", inputs=0, branch=True, X=count)
    up_bias = bias_spec(config, "XF", X=count) if config.bias else None
    shared = replace(config, ffn=options.shared * config.sizes["F"]) if options.shared else None
    return ExpertParams(
        router=linear_specs(config, "D", "x", bias=False, x=count),
        up=up,
        gate=up if is_gated else None,
        down=weight_spec(config, "XFD", inputs=0, branch=True, X=count),
        up_bias=up_bias,
        gate_bias=up_bias if is_gated else None,
        down_bias=bias_spec(config, "XD", X=count) if config.bias else None,
        shared=None if shared is None else feed_forward_specs(shared),
    )


def router_logits(layer: ExpertParams, x: Array) -> Array:
    """x [B,T,D] -> float32 [B,T,X], as everything that a router computes (Fedus et al. 2022, section 2.4)."""
    return einsum("BTD,Dx->BTx", x.astype(jnp.float32), layer.router.kernel)


def of_slots(layer: ExpertParams, config: Config, slots: Array, used: float) -> Array:
    """slots [B,X,C,D], C tokens for each expert -> [B,X,C,D], what the expert makes of them.

    On a mesh with an axis of experts, tokens go to the devices of their experts and back. `used` is the share of the
    slots that a model needs, which planning counts.
    """
    home = spec_of(slots)
    rows = tuple(name for name in mesh_axes(home[:1]) if name != EXPERT_AXIS)
    if EXPERT_AXIS in mesh_axes((*home, *spec_of(layer.up))):
        slots = reshard(slots, PartitionSpec(rows or None, EXPERT_AXIS, None, None))
    with jax.named_scope(f"experts[{round(1000 * used)}/1000 pairs]"):
        act = activation(config)
        hidden = _linear("BXCD,XDF->BXCF", slots, layer.up, layer.up_bias)
        if layer.gate is not None:
            hidden = act(_linear("BXCD,XDF->BXCF", slots, layer.gate, layer.gate_bias)) * hidden
        else:
            hidden = act(hidden)
        y = _linear("BXCF,XFD->BXCD", hidden, layer.down, layer.down_bias)
    return y if spec_of(y) == home else reshard(y, PartitionSpec(*home))


def _linear(equation: str, x: Array, kernel: Array, bias: Array | None) -> Array:
    """An affine map of each expert [X,inputs,outputs], with a bias [X,outputs]."""
    y = einsum(equation, x, kernel)
    return y if bias is None else y + jnp.expand_dims(unshard_fsdp(bias).astype(y.dtype), (0, 2))


def with_shared(layer: ExpertParams, config: Config, x: Array, y: Array) -> Array:
    """y [B,T,D], and what shared experts make of x [B,T,D]."""
    return y if layer.shared is None else y + feed_forward(layer.shared, config, x)
