"""One block: a mixer, perhaps cross-attention, and a feed-forward layer, joined by a residual scheme."""

from functools import partial
from typing import Any

import jax
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from tfm.attention.cross import cross_attention, cross_specs
from tfm.config.model import Config, Kind
from tfm.interfaces import AttentionContext, Block, BlockOutput, LayerCall
from tfm.ops import split
from tfm.residuals import Sublayer
from tfm.tables.feed_forwards import FEED_FORWARDS
from tfm.tables.mixers import MIXERS
from tfm.tables.positions import POSITIONS
from tfm.tables.residuals import RESIDUALS

# The name of what a block reads, in programs.
BLOCK_INPUT = "block input"


def block_specs(kind: Kind, config: Config, cross: bool = False) -> Block:
    """The spec tree of one block of a kind; with `cross` it attends to a memory too."""
    residual = RESIDUALS[kind.residual.name]
    names = ("mixer", "cross", "feed_forward") if cross else ("mixer", "feed_forward")
    specs = Block(
        mixer=MIXERS[kind.mixer.name].specs(kind.mixer, config),
        position=POSITIONS[kind.position.name].specs(kind.position, config),
        feed_forward=FEED_FORWARDS[kind.feed_forward.name].specs(kind.feed_forward, config),
        residual=residual.specs(kind.residual, config, names),
        cross=cross_specs(kind.mixer, config) if cross else None,
    )
    return residual.revise(kind.residual, config, specs)


def transformer_block(
    layer: Block,
    kind: Kind,
    config: Config,
    x: Array,
    context: AttentionContext,
    state: Any = None,
    keys_values: tuple[Array, Array] | None = None,
    noise: tuple[Array, Array | None] | None = None,
) -> tuple[Array, BlockOutput]:
    """x [B,T,D] -> [B,T,D], and what the pass asks for; x may be all streams of a residual scheme.

    context: the pass, with what `prepare_layers` adds
    state: the decode state of this layer
    keys_values: those of the memory that cross-attention reads [B,K,S,H]
    noise: the key of dropout, and the rate at which examples skip a sublayer; None turns both off
    """
    x = checkpoint_name(x, BLOCK_INPUT)
    sublayers = sublayers_of(layer, kind, config, context, state, keys_values, noise)
    call = LayerCall(kind.residual, config, layer.residual, None)
    y, outputs = RESIDUALS[kind.residual.name].chain(call, x, sublayers)
    return y, BlockOutput(
        state=outputs["mixer"].state,
        weights=outputs["mixer"].weights,
        cross_weights=outputs.get("cross"),
        inputs=x if context.record_inputs else None,
    )


def sublayers_of(
    layer: Block,
    kind: Kind,
    config: Config,
    context: AttentionContext,
    state: Any = None,
    keys_values: tuple[Array, Array] | None = None,
    noise: tuple[Array, Array | None] | None = None,
) -> dict[str, Sublayer]:
    """The sublayers of a block by name, in order. Arguments are those of `transformer_block`."""
    key, drop_path = noise or (None, None)
    mixer_key, mixer_drop, ffn_drop, cross_key, cross_drop, ffn_key = split(key, 6)
    mixer, position = context.prepared[config.kinds.index(kind)]
    position_call = LayerCall(kind.position, config, layer.position, position, mixer_key)
    scheme = POSITIONS[kind.position.name]
    score, read = partial(scheme.score, position_call), scheme.reader(position_call)
    call = LayerCall(kind.mixer, config, layer.mixer, mixer, mixer_key, kind.position.in_scores)
    mixed = partial(MIXERS[kind.mixer.name].forward, call, score=score, state=state)

    def feed(x: Array) -> tuple[Array, None]:
        feed_call: LayerCall = LayerCall(kind.feed_forward, config, layer.feed_forward, key=ffn_key)
        return FEED_FORWARDS[kind.feed_forward.name].forward(feed_call, x, context), None

    sublayers = {
        "mixer": Sublayer(
            jax.named_scope("mixer")(mixed if read is None else lambda x: mixed(read(x))), mixer_drop, drop_path
        )
    }
    if layer.cross is not None:
        call = LayerCall(kind.mixer, config, layer.cross, keys_values, cross_key)
        attend = partial(cross_attention, call, context=context)
        sublayers["cross"] = Sublayer(jax.named_scope("cross")(attend), cross_drop, drop_path)
    if layer.feed_forward is not None:
        sublayers["feed_forward"] = Sublayer(jax.named_scope("feed_forward")(feed), ffn_drop, drop_path)
    return sublayers
