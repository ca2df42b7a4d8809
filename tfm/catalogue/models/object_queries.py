"""Objects in a picture: a decoder of trained queries reads the states of patches, and each query becomes a class and a
box (DETR: Carion et al. 2020, section 3.2 and figure 2). Without a decoder the patches themselves are the queries, and
boxes start where they lie (OWL-ViT: Minderer et al. 2022, section 3.1).

Where every layer adds positions of patches to what makes queries and keys (`position=detr`, or `position.place=
queries_keys`), the decoder is the paper's (appendix A.3): it starts from zeros, adds its queries in every layer as
positions are added, and positions of patches to the keys of the memory; its states are normalized at the end. Elsewhere
a decoder starts from its queries, and knows the places of patches from the encoder's states alone.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.attention.project import keys_values, swap_heads
from tfm.catalogue.models.pixel_outputs import last_grid
from tfm.config.model import Config
from tfm.inputs import default_positions
from tfm.interfaces import AttentionContext, Block, LayerCall, Memory
from tfm.layers.stack import Layers, by_layer, map_layers, stack, stack_specs
from tfm.models.encoder import Encoder, encoder, encoder_specs
from tfm.models.seq2seq import cross_keys_values
from tfm.norms import norm, norm_specs
from tfm.ops import Linear, activation, broadcast_param, einsum, linear, linear_specs, lookup, split
from tfm.params import weight_spec
from tfm.sharding import replicate_length
from tfm.tables.positions import POSITIONS

# The center of a box, its width and its height.
_SIDES = 4


@struct.dataclass
class ObjectDetector:
    """An encoder of pictures, a decoder whose embeddings are queries [q,D], None where patches are the queries, classes
    [D,C] of which the last is no object, and the three maps of boxes, to [D,4] in the end."""

    encoder: Encoder
    queries: Encoder | None
    classes: Linear
    boxes: tuple[Linear, Linear, Linear]


class DetectedObjects(NamedTuple):
    """What queries found: float32 logits [...,B,q,C], the last class being no object, and boxes [...,B,q,4]: the
    center's x and y, width and height, all in parts of the picture's width and height."""

    logits: Array
    boxes: Array


def detector_specs(config: Config, queries: int, layers: int) -> ObjectDetector:
    """The spec tree of a detector of `config.classes` kinds of objects, with a decoder of some layers; with none the
    patches are the queries."""
    of_decoder = query_config(config, max(1, layers))
    stack_of_queries = stack_specs(of_decoder, cross=True)
    if adds_in_layers(config):
        stack_of_queries["norm"] = norm_specs(of_decoder)
    with_none = replace(of_decoder, classes=config.classes + 1)
    first, second = (linear_specs(of_decoder, "D", "E", bias=True) for _ in range(2))
    return ObjectDetector(
        encoder=encoder_specs(config),
        queries=Encoder(embed=weight_spec(of_decoder, "qD", q=queries), **stack_of_queries) if layers else None,
        classes=linear_specs(with_none, "D", "C", bias=True),
        boxes=(first, second, linear_specs(of_decoder, "D", "s", bias=True, s=_SIDES)),
    )


def adds_in_layers(config: Config) -> bool:
    """Whether every layer adds positions to what makes its queries and keys, those of patches and object queries."""
    last = config.stage_configs[-1]
    return last.position in last.positions and getattr(last.position, "place", None) == "queries_keys"


def query_config(config: Config, layers: int) -> Config:
    """The configuration of the decoder of a detector: layers of plain attention as wide as the last stage, which add no
    positions."""
    last, plain = config.stage_configs[-1], Config()
    plain_parts = {name: getattr(plain, name) for name in ("prefix", "period", "input", "position", "mixer")}
    return replace(last, layers=layers, **plain_parts)


def detect(model: ObjectDetector, config: Config, pixels: Array, key: Array | None = None) -> DetectedObjects:
    """pixels [B,H,W,C] -> what the queries found behind each of l layers of the decoder, logits [l,B,q,C] and boxes
    [l,B,q,4]; the last is the answer. Without a decoder l is 1, and the q queries are the patches of the last stage. A
    key turns dropout on."""
    encoder_key, decoder_key = split(key, 2)
    with jax.named_scope("encoder"):
        states = replicate_length(encoder(model.encoder, config, pixels, key=encoder_key))
    if model.queries is None:
        return _objects(model, config, [states[:, config.stage_configs[-1].input.prefix :]], patch_boxes(config))
    of_decoder = query_config(config, jax.tree.leaves(model.queries.layers.period)[0].shape[0])
    positions = default_positions(_first_places(states, len(model.queries.embed)))
    context = AttentionContext(positions, causal=False, restarts=False, record_inputs=True)
    queries, decoder = lookup(model.queries.embed, positions).astype(states.dtype), model.queries
    if adds_in_layers(config):
        memory = _memory_with_places(model, config, of_decoder, states)
        decoder = replace(decoder, layers=_with_queries(decoder, of_decoder))
        queries = jnp.zeros_like(queries)
    else:
        memory = cross_keys_values(decoder, of_decoder, states)
    last, outputs = stack(decoder, of_decoder, queries, context, memory=memory, key=decoder_key)
    inputs = [output.inputs for output in by_layer(of_decoder, outputs)][1:]
    if model.queries.norm is not None:
        inputs = [norm(of_decoder, model.queries.norm, x) for x in inputs]
    return _objects(model, config, [*inputs, last])


def _memory_with_places(model: ObjectDetector, config: Config, of_decoder: Config, states: Array) -> Memory:
    """states [B,S,D] of the encoder -> a memory whose keys know where patches lie, and whose values do not."""
    assert model.queries is not None
    last, of_encoder = config.stage_configs[-1], [*model.encoder.all_stages.values()][-1]
    shared = of_encoder.positions[last.positions.index(last.position)]
    call: LayerCall = LayerCall(last.position, last, shared)
    places = POSITIONS[last.position.name].prepare(call, AttentionContext(default_positions(states)))
    keys = states + places.astype(states.dtype)

    def of_layer(block: Block) -> tuple[Array, ...]:
        return tuple(map(swap_heads, keys_values(block.cross, of_decoder, keys, states)))

    return Memory(map_layers(of_layer, of_decoder, model.queries.layers), jnp.ones(states.shape[:2], bool))


def _with_queries(decoder: Encoder, config: Config) -> Layers:
    """The layers of a decoder that adds its queries to what makes the queries of attention, and the keys where it reads
    itself: (x + p) W + b is x W + (p W + b), so each place has a bias of its own."""
    queries = lookup(decoder.embed, jnp.arange(len(decoder.embed))[None]).astype(config.dtype)

    def at_places(layer: Linear, equation: str) -> Linear:
        bias = einsum(equation, queries, layer.kernel)[0]
        return replace(layer, bias=bias if layer.bias is None else bias + broadcast_param(layer.bias, bias))

    def of_layer(block: Block) -> Block:
        own = replace(
            block.mixer,
            query=at_places(block.mixer.query, "BTD,DKGH->BTKGH"),
            key=at_places(block.mixer.key, "BTD,DKH->BTKH"),
        )
        return replace(
            block, mixer=own, cross=replace(block.cross, query=at_places(block.cross.query, "BTD,DKGH->BTKGH"))
        )

    return map_layers(of_layer, config, decoder.layers)


def _first_places(states: Array, count: int) -> Array:
    """states [B,T,D] -> zeros [B,count], on the devices of the states."""
    return jnp.zeros_like(states[:, :1, 0]) + jnp.zeros((1, count), states.dtype)


def patch_boxes(config: Config) -> np.ndarray:
    """The box of each patch of the last stage, the logits of its numbers, float32 [1,q,4]."""
    grid = last_grid(config)
    rows, columns = np.indices(grid)
    centres = np.stack([(columns + 0.5) / grid[1], (rows + 0.5) / grid[0]], axis=-1)
    boxes = np.concatenate([centres, np.broadcast_to(1 / np.array(grid[::-1]), centres.shape)], axis=-1)
    boxes = np.minimum(boxes, 1 - 1e-3).reshape(1, -1, _SIDES)
    return np.log(boxes / (1 - boxes)).astype(np.float32)


def _objects(
    model: ObjectDetector, config: Config, states: list[Array], start: np.ndarray | float = 0.0
) -> DetectedObjects:
    """states [B,q,D] of l layers -> logits [l,B,q,C] and boxes [l,B,q,4], whose logits are differences to `start`."""
    first, second, last = model.boxes
    logits, boxes = [], []
    for x in states:
        logits.append(linear(model.classes, "BTD,DC->BTC", x).astype(jnp.float32))
        hidden = activation(config)(linear(first, "BTD,DE->BTE", x))
        hidden = activation(config)(linear(second, "BTD,DE->BTE", hidden))
        boxes.append(jax.nn.sigmoid(linear(last, "BTD,Ds->BTs", hidden).astype(jnp.float32) + start))
    return DetectedObjects(jnp.stack(logits), jnp.stack(boxes))
