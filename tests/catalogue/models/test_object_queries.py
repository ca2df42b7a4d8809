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


def attended(layer, x, memory):
    """Attention in loops over heads."""
    q, k, v = (
        np.einsum("bsd,d...->bs...", source, np.asarray(part.kernel, np.float64)) + np.asarray(part.bias)
        for part, source in ((layer.query, x), (layer.key, memory), (layer.value, memory))
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
