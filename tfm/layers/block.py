"""One block: a mixer, perhaps cross-attention, and a feed-forward layer, joined by a residual scheme."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.cross import cross_attention, cross_specs
from tfm.config.model import Config, Kind
from tfm.interfaces import AttentionContext, BlockOutput, LayerCall, MixerOutput, Sublayer
from tfm.layers.feed_forward import FeedForward, feed_forward, feed_forward_specs
from tfm.ops import split
from tfm.sharding import replicate_length
from tfm.tables.mixers import MIXERS
from tfm.tables.positions import POSITIONS
from tfm.tables.residuals import RESIDUALS


@struct.dataclass
class Block:
    """Parameters of one block: of its mixer, of positions in it, of its feed-forward layer and of its residual scheme.

    Those of L blocks have L in front of their shapes. `cross` is the attention of a decoder to the memory of an
    encoder. A residual scheme may have no feed-forward layer.
    """

    mixer: Any
    position: Any
    feed_forward: FeedForward | None
    residual: Any
    cross: Any = None


class BlockInput(NamedTuple):
    """What a block reads beside x.

    context: the pass
    mixer, position: what their `prepare` made for this kind of layer
    state: the decode state of this layer, or its states of the segment before, or None
    memory: what cross-attention reads, or None
    drop_path: the rate at which examples skip a sublayer, or None
    """

    context: AttentionContext
    mixer: Any
    position: Any
    state: Any = None
    memory: Any = None
    drop_path: Array | None = None


def block_specs(kind: Kind, config: Config, cross: bool = False) -> Block:
    """The spec tree of one block of a kind; with `cross` it attends to a memory too."""
    residual = RESIDUALS[kind.residual.name]
    names = tuple(name for name in residual.sublayers if cross or name != "cross")
    specs = Block(
        mixer=MIXERS[kind.mixer.name].specs(kind.mixer, config),
        position=POSITIONS[kind.position.name].specs(kind.position, config),
        feed_forward=feed_forward_specs(config) if "feed_forward" in names else None,
        residual=residual.specs(kind.residual, config, names),
        cross=cross_specs(kind.mixer, config) if cross else None,
    )
    return residual.rescale(kind.residual, config, specs)


def transformer_block(
    layer: Block, kind: Kind, config: Config, x: Any, block_input: BlockInput, key: Array | None = None
) -> tuple[Any, BlockOutput]:
    """What `Residual.start` or a block has returned, [B,T,D] for one stream -> the same; a key turns dropout on."""
    residual, sublayers = RESIDUALS[kind.residual.name], sublayers_of(layer, kind, config, block_input, key)
    branches: dict[str, Array] = {}

    def recorded(name: str, sublayer: Sublayer) -> Sublayer:
        def run(y: Array):
            branches[name], output = sublayer.function(y)
            return branches[name], output

        return sublayer._replace(function=run)

    if block_input.context.record_branches:
        sublayers = {name: recorded(name, sublayer) for name, sublayer in sublayers.items()}
    y, outputs = residual.chain(LayerCall(kind.residual, config, layer.residual), x, sublayers)
    return y, BlockOutput(
        state=outputs["mixer"].state,
        weights=outputs["mixer"].weights,
        cross_weights=outputs.get("cross"),
        inputs=residual.finish(kind.residual, config, x) if block_input.context.record_inputs else None,
        branches=branches if block_input.context.record_branches else None,
    )


def sublayers_of(
    layer: Block, kind: Kind, config: Config, block_input: BlockInput, key: Array | None
) -> dict[str, Sublayer]:
    """The sublayers of a block by name, in order; a key turns dropout on."""
    mixer_key, mixer_drop, ffn_drop, cross_key, cross_drop = split(key, 5)
    position_call = LayerCall(kind.position, config, layer.position, block_input.position, mixer_key)
    position = POSITIONS[kind.position.name]
    score, in_scores = partial(position.score, position_call), kind.position.in_scores
    mixer_call = LayerCall(kind.mixer, config, layer.mixer, block_input.mixer, mixer_key, in_scores)

    def mixed(y: Array):
        result, output = MIXERS[kind.mixer.name].forward(mixer_call, y, score, block_input.state)
        return result, _keep_states(output, block_input, y)

    def attend_memory(y: Array):
        call = LayerCall(kind.mixer, config, layer.cross, None, cross_key)
        return cross_attention(call, y, block_input.memory, block_input.context)

    ffn: Any = layer.feed_forward

    def feed(y: Array):
        return feed_forward(ffn, config, y), None

    def sublayer(name: str, function, drop_key: Array | None) -> Sublayer:
        return Sublayer(jax.named_scope(name)(function), drop_key, block_input.drop_path)

    sublayers = {"mixer": sublayer("mixer", mixed, mixer_drop)}
    if layer.cross is not None:
        sublayers["cross"] = sublayer("cross", attend_memory, cross_drop)
    if layer.feed_forward is not None:
        sublayers["feed_forward"] = sublayer("feed_forward", feed, ffn_drop)
    return sublayers


def _keep_states(output: MixerOutput, block_input: BlockInput, y: Array) -> MixerOutput:
    """The output of a mixer that has read y [B,T,D]; with a memory of segments, its state is the last M of the states
    before y and of y. No gradient reaches them."""
    size = block_input.context.segment_memory
    if not size:
        return output
    states = jnp.concatenate([block_input.state, replicate_length(y)], axis=1)
    return replace(output, state=jax.lax.stop_gradient(states[:, -size:]))
