"""Objects in a picture: a decoder of trained queries reads the states of patches, and each query becomes a class and a
box (DETR: Carion et al. 2020, section 3.2 and figure 2). Without a decoder the patches themselves are the queries, and
boxes start where they lie (OWL-ViT: Minderer et al. 2022, section 3.1).

Differences: the encoder is a model of patches, and positions of patches are those of the encoder's states; a decoder
starts from its queries, which the paper adds in every layer.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.catalogue.models.pixel_outputs import last_grid
from tfm.config.model import Config
from tfm.inputs import default_positions
from tfm.interfaces import AttentionContext
from tfm.layers.stack import by_layer, stack, stack_specs
from tfm.models.encoder import Encoder, encoder, encoder_specs
from tfm.models.seq2seq import cross_keys_values
from tfm.norms import norm
from tfm.ops import Linear, activation, linear, linear_specs, lookup, split
from tfm.params import weight_spec
from tfm.sharding import replicate_length

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
    with_none = replace(of_decoder, classes=config.classes + 1)
    first, second = (linear_specs(of_decoder, "D", "E", bias=True) for _ in range(2))
    return ObjectDetector(
        encoder=encoder_specs(config),
        queries=Encoder(embed=weight_spec(of_decoder, "qD", q=queries), **stack_specs(of_decoder, cross=True))
        if layers
        else None,
        classes=linear_specs(with_none, "D", "C", bias=True),
        boxes=(first, second, linear_specs(of_decoder, "D", "s", bias=True, s=_SIDES)),
    )


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
    memory = cross_keys_values(model.queries, of_decoder, states)
    positions = default_positions(_first_places(states, len(model.queries.embed)))
    context = AttentionContext(positions, causal=False, restarts=False, record_inputs=True)
    queries = lookup(model.queries.embed, positions).astype(states.dtype)
    last, outputs = stack(model.queries, of_decoder, queries, context, memory=memory, key=decoder_key)
    inputs = [output.inputs for output in by_layer(of_decoder, outputs)][1:]
    if model.queries.norm is not None:
        inputs = [norm(of_decoder, model.queries.norm, x) for x in inputs]
    return _objects(model, config, [*inputs, last])


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
