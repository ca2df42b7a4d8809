"""What every layer of a pass has in common, and what one layer gives its variants."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.masks.mask import Mask
from tfm.options.choices import Options


@struct.dataclass
class AttentionContext:
    """One pass over a text, the same for all its layers.

    positions: int32 [B,T]
    mask: which keys a query may see, beside the pattern of its layer and causality; None: all
    length: tokens that the decode states hold before these
    slots: tokens that the decode states have room for; None: there are none
    causal: no token sees a later one
    restarts: positions may do other than count the columns of a row: it holds several texts, or padding before one
    segment_memory: tokens of the segment before, whose states every layer reads; it returns as many for the next one
    keep: layers return what their decode states take
    record: layers return their attention weights
    record_inputs: layers return what they have read
    record_branches: layers return what each sublayer adds to the stream, before dropout
    layers_around: layers of other stages before and after these
    condition: [B,D], a vector of another text, for layers that ask for it
    """

    positions: Array
    mask: Mask | None = None
    length: Array | int = 0
    slots: int | None = struct.field(pytree_node=False, default=None)
    causal: bool = struct.field(pytree_node=False, default=False)
    restarts: bool = struct.field(pytree_node=False, default=True)
    segment_memory: int = struct.field(pytree_node=False, default=0)
    keep: bool = struct.field(pytree_node=False, default=False)
    record: bool = struct.field(pytree_node=False, default=False)
    record_inputs: bool = struct.field(pytree_node=False, default=False)
    record_branches: bool = struct.field(pytree_node=False, default=False)
    layers_around: tuple[int, int] = struct.field(pytree_node=False, default=(0, 0))
    condition: Array | None = None

    @property
    def key_positions(self) -> Array:
        """The positions of keys, int32 [B or 1, S]: those of the memory of a segment count from 0 too."""
        if not self.segment_memory:
            return self.positions
        return jnp.arange(self.segment_memory + self.positions.shape[1])[None]

    @property
    def text_length(self) -> int:
        """Tokens of the longest text, which is static: slots of the decode states, or keys of the pass."""
        return self.segment_memory + self.positions.shape[1] if self.slots is None else self.slots


class LayerCall(NamedTuple):
    """What a mixer or a position has in one layer.

    options: its options
    config: the configuration of the model
    params: its parameters in this layer
    prepared: what its `prepare` returned
    key: of dropout, or None
    in_scores: positions are part of the scores of this layer
    """

    options: Any
    config: Config
    params: Any
    prepared: Any
    key: Array | None
    in_scores: bool = False


@struct.dataclass
class MixerOutput:
    """What a mixer returns beside its result.

    state: what `Mixer.write` puts into the decode state
    weights: float32 attention weights [B,K,G,T,S]
    """

    state: Any = None
    weights: Array | None = None


class VariantError(ValueError):
    """A variant cannot do what is asked of it."""


def refuse(options: Options, reason: str, remedy: str) -> None:
    """Raises VariantError with the tag of the variant."""
    raise VariantError(f"{options.name} {reason}; {remedy}")


def refuse_scores(call: LayerCall) -> None:
    """Raises VariantError where positions are part of scores, for a mixer that has none."""
    if call.in_scores:
        refuse(call.options, "has no scores of queries and keys for positions to change", "try position=learned")


def refuse_bias(call: LayerCall, bias: Any) -> None:
    """Raises VariantError where positions add a bias to scores, for a mixer that has no scores of pairs of tokens."""
    if bias is not None:
        refuse(call.options, "has no scores of pairs of tokens to bias", "try position=learned or position=rotary")
