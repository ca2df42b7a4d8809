"""The slots of a model, and what the functions of a variant in them get.

    slot          record            table                     what its variants do
    mixer         Mixer             tfm/tables/mixers.py      tokens learn of each other
    position      Position          .../positions.py          tokens know where they stand
    residual      Residual          .../residuals.py          sublayers join the stream
    feed_forward  FeedForwardLayer  .../feed_forwards.py      tokens are computed each by itself
    input         Input             .../inputs.py             texts and images become vectors

A variant is one file of functions and a record of them; a table finds the record by the tag of the options. All
functions have one calling convention:

- what declares takes the options and the configuration first: `specs(options, config)`. It returns a spec tree
  (`tfm.Spec`), or arrays that depend on no parameter;
- what computes takes a `LayerCall` first: options, configuration, parameters, prepared values and the key of dropout.
  Then come arrays: `forward(call, x, ...)`;
- `prepare(call, context)` runs once a pass, before all layers; its result is `call.prepared` in each of them.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from flax import struct
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.config.model import Config
from tfm.masks.mask import Mask
from tfm.options.choices import Options
from tfm.params import PyTree

# The options, the parameters and the prepared values of a variant.
OptionsT = TypeVar("OptionsT", covariant=True)
ParamsT = TypeVar("ParamsT", covariant=True)
PreparedT = TypeVar("PreparedT", covariant=True)

# Queries [B,T,K,G,H], keys [B,S,K,H] and the projections of a layer -> queries and keys with positions, and a bias.
Score = Callable[[Array, Array, PyTree], tuple[Array, Array, ScoreBias | None]]


@struct.dataclass
class AttentionContext:
    """One pass over a text, the same for all its layers.

    positions: int32 [B,T]
    mask: which keys a query may see, beside the pattern of its layer and causality; None: all
    length: tokens that the decode states hold before these
    slots: tokens that the decode states have room for; None: there are none
    causal: no token sees a later one
    restarts: positions may do other than count the columns of a row: it holds several texts, or padding before one
    keep: layers return what their decode states take
    record: layers return their attention weights
    record_inputs: layers return what they have read
    memory: what cross-attention reads, without its layers, or None
    prepared: for each of `config.kinds`, what its mixer and its position prepare (`tfm.prepare_layers`)
    """

    positions: Array
    mask: Mask | None = None
    length: Array | int = 0
    slots: int | None = struct.field(pytree_node=False, default=None)
    causal: bool = struct.field(pytree_node=False, default=False)
    restarts: bool = struct.field(pytree_node=False, default=True)
    keep: bool = struct.field(pytree_node=False, default=False)
    record: bool = struct.field(pytree_node=False, default=False)
    record_inputs: bool = struct.field(pytree_node=False, default=False)
    memory: "Memory | None" = None
    prepared: tuple[tuple[PyTree, PyTree], ...] = ()

    @property
    def key_positions(self) -> Array:
        """The positions of keys, int32 [B or 1, S]."""
        return self.positions

    @property
    def text_length(self) -> int:
        """Tokens of the longest text, which is static: slots of the decode states, or keys of the pass."""
        return self.positions.shape[1] if self.slots is None else self.slots


@struct.dataclass
class Memory:
    """The states of an encoder, as the layers of a decoder read them.

    layers: `Layers` of pairs of keys and values [R,B,K,S,H]
    valid: bool [B,S], True for a token
    coverage: None, or float32 [W*B,S]: the attention that each token has got so far from each of W texts of its row, a
        mean over heads and layers
    mask: which tokens a target may see, where rows hold several texts; None: all that are valid
    """

    layers: PyTree
    valid: Array
    coverage: Array | None = None
    mask: Mask | None = None


class LayerCall(NamedTuple, Generic[OptionsT, ParamsT, PreparedT]):
    """What a function on arrays has beside them.

    options: of its variant
    config: the configuration of the model
    params: its parameters, those of one layer or those that layers share
    prepared: what its `prepare` returned
    key: of dropout, or None
    in_scores: positions are part of the scores of this layer
    """

    options: OptionsT
    config: Config
    params: ParamsT = None  # type: ignore[assignment]
    prepared: PreparedT = None  # type: ignore[assignment]
    key: Array | None = None
    in_scores: bool = False


@struct.dataclass
class Block:
    """Parameters of one block: of its mixer, of positions in it, of its feed-forward layer and of its residual scheme.

    Those of L blocks have L in front of their shapes. `cross` is the attention of a decoder to the memory of an
    encoder. A residual scheme may have no feed-forward layer.
    """

    mixer: PyTree
    position: PyTree
    feed_forward: PyTree
    residual: PyTree
    cross: PyTree = None


@struct.dataclass
class MixerOutput:
    """What a mixer returns beside its result.

    state: what `Mixer.write` puts into the decode state
    weights: float32 attention weights [B,K,G,T,S]
    """

    state: PyTree = None
    weights: Array | None = None


@struct.dataclass
class BlockOutput:
    """What a block returns beside its result; None where nobody asks.

    state: what its mixer puts into the decode state
    weights: attention weights [B,K,G,T,S]
    cross_weights: those of cross-attention
    inputs: what the block has read [B,T,D]; of a residual scheme with two streams, both
    """

    state: PyTree = None
    weights: Array | None = None
    cross_weights: Array | None = None
    inputs: PyTree = None


class VariantError(ValueError):
    """A variant cannot do what is asked of it."""


def refuse(options: Options, reason: str, remedy: str) -> None:
    """Raises VariantError with the tag of the variant."""
    raise VariantError(f"{options.name} {reason}; {remedy}")


def refuse_scores(call: LayerCall) -> None:
    """Raises VariantError where positions are part of scores, for a mixer that has none."""
    if call.in_scores:
        refuse(call.options, "has no scores of queries and keys for positions to change", "try position=learned")


def refuse_bias(call: LayerCall, bias: ScoreBias | None) -> None:
    """Raises VariantError where positions add a bias to scores, for a mixer that has no scores of pairs of tokens."""
    if bias is not None:
        refuse(call.options, "has no scores of pairs of tokens to bias", "try position=learned or position=rotary")


def no_parameters(*arguments: object) -> None:
    """The spec tree of a variant without parameters."""


def cannot_start(options: Options, config: Config, output: PyTree, slots: int) -> PyTree:
    """Refuses to generate."""
    refuse(options, "reads a text as one piece and cannot generate", "try mixer=softmax")


def replace_state(state: PyTree, output: PyTree, length: Array | int) -> PyTree:
    """The state of a mixer whose output is its next state."""
    return output


class Mixer(NamedTuple):
    """How the tokens of a text learn of each other.

    specs: (options, config) -> the spec tree of one layer
    prepare: (call, context) -> whatever all layers of this kind share in a pass, such as masks
    forward: (call, x, score, state) -> y and a `MixerOutput`, for x and y [B,T,D]. `score` is a `Score`, which puts
        positions into scores; `state` is what the layer has kept of the tokens before, leaves [B,...], or None
    start: (options, config, output, slots) -> the decode state after a prefill, leaves [R,B,...] of R layers, with room
        for `slots` tokens; of a decode state, the same with more room
    write: (state, output, length) -> the decode state with the output of an extension, written behind `length` tokens
    move: (state, distance) -> the decode state with every token in the slot at this distance from its own; None where
        a state has no slots by token
    """

    specs: Callable[..., PyTree]
    prepare: Callable[..., PyTree]
    forward: Callable[..., tuple[Array, MixerOutput]]
    start: Callable[..., PyTree] = cannot_start
    write: Callable[..., PyTree] = replace_state
    move: Callable[..., PyTree] | None = None


def plain_embedding(call: LayerCall, x: Array, positions: Array) -> Array:
    """The embeddings as they are."""
    return x


def prepare_nothing(call: LayerCall, context: AttentionContext) -> None:
    """Nothing is shared by the layers."""


def plain_score(call: LayerCall, q: Array, k: Array, projections: PyTree) -> tuple[Array, Array, ScoreBias | None]:
    """Queries and keys as they are, and no bias."""
    return q, k, None


def reads_as_it_is(call: LayerCall) -> None:
    """Mixers read the stream as it is."""


class Position(NamedTuple):
    """How a model knows where a token stands.

    embed_specs: (options, config) -> the spec tree of `embed`
    embed: (call, x, positions [B,T]) -> the embeddings x [B,T,U], float32, with positions
    shared_specs: (options, config) -> the spec tree that all layers with these options share
    specs: (options, config) -> the spec tree of one layer
    prepare: (call, context) -> whatever the layers share in a pass; `call.params` are the shared ones
    score: (call, q, k, projections) -> q, k, bias: positions in the scores of one layer. `projections` are those
        of its queries and keys
    reader: call -> the function of what the mixer of a layer reads, x [B,T,D] -> [B,T,D]; None: x itself
    """

    embed_specs: Callable[..., PyTree] = no_parameters
    embed: Callable[..., Array] = plain_embedding
    shared_specs: Callable[..., PyTree] = no_parameters
    specs: Callable[..., PyTree] = no_parameters
    prepare: Callable[..., PyTree] = prepare_nothing
    score: Callable[..., tuple[Array, Array, ScoreBias | None]] = plain_score
    reader: Callable[[LayerCall], Callable[[Array], Array] | None] = reads_as_it_is


def unchanged(options: Options, config: Config, specs: PyTree) -> PyTree:
    """The spec tree as it is."""
    return specs


class Residual(NamedTuple):
    """How the sublayers of a block join the stream.

    specs: (options, config, names of the sublayers) -> the spec tree of one block
    chain: (call, x, `Sublayers`) -> x and the outputs of the sublayers by name
    final_norm: a norm follows the last block
    revise: (options, config, specs of a block, or of the embeddings) -> the specs with other initializers, or without a
        sublayer
    """

    specs: Callable[..., PyTree]
    chain: Callable[..., tuple[PyTree, dict[str, PyTree]]]
    final_norm: bool
    revise: Callable[..., PyTree] = unchanged


class FeedForwardLayer(NamedTuple):
    """What every token goes through by itself.

    specs: (options, config) -> the spec tree of one layer
    forward: (call, x, context) -> y, for x and y [B,T,D]
    """

    specs: Callable[..., PyTree]
    forward: Callable[..., Array]


class Input(NamedTuple):
    """How what a model reads becomes vectors.

    specs: (options, config) -> the spec tree of the embeddings
    embed: (call, inputs, positions, types) -> embeddings [B,T,D] in `config.dtype`
    contents: (options, config, count, length) -> `count` inputs, each of `length` equal contents or more; None for an
        input that no model begins with
    """

    specs: Callable[..., PyTree]
    embed: Callable[..., Array]
    contents: Callable[..., PyTree] | None = None
