"""A detector: its states against plain products, its layers, stages that it reads."""

import jax
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.catalogue.models.object_queries import query_config
from train.tasks import presets

SMALL = {"layers": 1, "width": 16, "heads": 2, "ffn": 16, "classes": 3, "input.size": 8, "input.patch": 4}


def normalized(norm, x):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    return x * np.asarray(norm.scale) + np.asarray(norm.bias)


def attended(layer, x, memory, valued=None):
    """Attention in loops over heads; values are those of `valued`, by default of the memory."""
    q, k, v = (
        np.einsum("bsd,d...->bs...", source, np.asarray(part.kernel, np.float64)) + np.asarray(part.bias)
        for part, source in ((layer.query, x), (layer.key, memory), (layer.value, memory if valued is None else valued))
    )
    total = np.asarray(layer.output.bias, np.float64)
    for head in range(2):
        scores = np.einsum("bth,bsh->bts", q[:, :, head, 0], k[:, :, head]) / np.sqrt(8)
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        total = total + weights @ v[:, :, head] @ np.asarray(layer.output.kernel, np.float64)[head, 0]
    return total


def mapped(layer, x):
    return x @ np.asarray(layer.kernel, np.float64) + np.asarray(layer.bias, np.float64)


@pytest.mark.slow
def test_a_detector_is_plain_attention_of_queries():
    model = tfm.override(presets.model("detect-micro"), SMALL)
    params = random_params(tfm.detector_specs(model, queries=3, layers=2))
    pixels = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)
    detected = jax.jit(tfm.detect, static_argnums=1)(params, model, pixels)
    memory = np.asarray(tfm.encoder(params.encoder, model, pixels), np.float64)
    x = np.broadcast_to(np.asarray(params.queries.embed, np.float64), (2, 3, 16))
    blocks = params.queries.layers.period[0]
    for layer in range(2):
        block = jax.tree.map(lambda leaf, row=layer: leaf[row], blocks)
        norms = block.residual
        y = normalized(norms.mixer, x)
        x = x + attended(block.mixer, y, y)
        x = x + attended(block.cross, normalized(norms.cross, x), memory)
        feed = block.feed_forward
        inner = mapped(feed.up, normalized(norms.feed_forward, x))
        x = x + mapped(feed.down, np.asarray(jax.nn.gelu(inner, approximate=False)))
        state = normalized(params.queries.norm, x)
        np.testing.assert_allclose(detected.logits[layer], mapped(params.classes, state), atol=2e-3)
        first, second, last = params.boxes
        for part in (first, second):
            state = np.asarray(jax.nn.gelu(mapped(part, state), approximate=False))
        np.testing.assert_allclose(detected.boxes[layer], 1 / (1 + np.exp(-mapped(last, state))), atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("share_layers", [False, True])
@pytest.mark.parametrize(
    "places", [{"position": "detr"}, {"position": "learned", "position.place": "queries_keys", "input.cls": True}]
)
def test_queries_and_places_are_added_in_every_layer(places, share_layers):
    """As in the figure of the appendix: to queries and keys, and to no values; the decoder starts from zeros."""
    changes = (
        SMALL | places | {"share_layers": share_layers, "residual": "post", "activation": "relu", "norm_eps": 1e-6}
    )
    model = tfm.override(presets.model("detect-micro"), changes)
    params = random_params(tfm.detector_specs(model, queries=3, layers=1 if share_layers else 2))
    pixels = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)
    detected = jax.jit(tfm.detect, static_argnums=1)(params, model, pixels)
    memory = np.asarray(tfm.encoder(params.encoder, model, pixels), np.float64)
    context = tfm.AttentionContext(np.arange(memory.shape[1])[None])
    call = tfm.LayerCall(model.position, model, params.encoder.positions[0])
    keys = memory + np.asarray(tfm.position_of(model.position).prepare(call, context), np.float64)
    added, x = np.asarray(params.queries.embed, np.float64)[None], np.zeros((2, 3, 16))
    for layer in range(len(detected.logits)):
        block = jax.tree.map(lambda leaf, row=layer: leaf[row], params.queries.layers.period[0])
        norms, feed = block.residual, block.feed_forward
        x = normalized(norms.mixer, x + attended(block.mixer, x + added, x + added, x))
        x = normalized(norms.cross, x + attended(block.cross, x + added, keys, memory))
        x = normalized(norms.feed_forward, x + mapped(feed.down, np.maximum(mapped(feed.up, x), 0)))
        state = normalized(params.queries.norm, x)
        np.testing.assert_allclose(detected.logits[layer], mapped(params.classes, state), atol=1e-4)
    for part in params.boxes[:-1]:
        state = np.maximum(mapped(part, state), 0)
    np.testing.assert_allclose(detected.boxes[-1], 1 / (1 + np.exp(-mapped(params.boxes[-1], state))), atol=1e-4)


def test_pictures_of_another_size_have_the_same_queries():
    model = tfm.override(presets.model("detect-micro"), SMALL | {"position": "detr"})
    params = jax.tree.map(lambda spec: np.zeros(spec.shape), tfm.detector_specs(model, queries=3, layers=1))
    larger, same = tfm.interpolate_positions(model, params, (16, 8))
    assert larger.input.grid == (4, 2)
    assert [*map(id, jax.tree.leaves(same))] == [*map(id, jax.tree.leaves(params))]


@pytest.mark.slow
@pytest.mark.parametrize("cls", [True, False])
def test_without_a_decoder_boxes_start_where_patches_lie(cls):
    """A last map of zeros changes nothing: the box of a patch is the patch. Rows of patches follow each other."""
    model = tfm.override(presets.model("detect-micro"), {**SMALL, "input.size": 16, "input.cls": cls})
    params = random_params(tfm.detector_specs(model, queries=3, layers=0))
    still = jax.tree.map(np.zeros_like, params.boxes[-1])
    pixels = np.random.default_rng(0).normal(size=(2, 16, 16, 3)).astype(np.float32)
    params = params.replace(boxes=(*params.boxes[:2], still))
    logits, boxes = jax.jit(tfm.detect, static_argnums=1)(params, model, pixels)
    patches = [[(column + 0.5) / 4, (row + 0.5) / 4, 0.25, 0.25] for row in range(4) for column in range(4)]
    np.testing.assert_allclose(boxes, np.broadcast_to(patches, (1, 2, 16, 4)), atol=1e-6)
    states = np.asarray(tfm.encoder(params.encoder, model, pixels), np.float64)[:, -16:]
    np.testing.assert_allclose(logits[0], mapped(params.classes, states), atol=2e-3)


def test_queries_are_as_wide_as_the_last_stage():
    model = presets.model("swin-mini")
    small = query_config(model, 2)
    assert (small.width, small.layers, small.stages) == (model.stage_configs[-1].width, 2, ())
    assert (small.mixer.name, small.position.name) == ("softmax", "learned")
