"""XCiT's local patch interaction, against loops."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import grid as oracle

import tfm

VALUES = {"input": "patches", "input.size": 4, "input.image_width": 6, "input.patch": 2, "input.cls": False}
VALUES |= {"layers": 1, "heads": 2, "width": 8, "ffn": 12, "dropout": 0.0, "position": "none", "mixer": "xca"}
CONFIG = tfm.override(tfm.Config(), VALUES | {"residual": "patch_interaction", "residual.layer_scale": 0.5})


def normalized(norm, x):
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + CONFIG.norm_eps)
    return y * np.asarray(norm.scale, np.float64) + np.asarray(norm.bias, np.float64)


@pytest.mark.slow
def test_a_block_whose_sublayers_add_nothing_adds_two_convolutions(fill):
    model = jax.tree.map(jnp.asarray, fill(tfm.encoder_specs(CONFIG)))
    (block,) = [jax.tree.map(lambda leaf: leaf[0], tree) for tree in model.layers.period]
    params = block.residual
    silent = {name: jnp.zeros_like(scale) for name, scale in params.norms.scales.items()}
    block = dataclasses.replace(
        block, residual=dataclasses.replace(params, norms=dataclasses.replace(params.norms, scales=silent))
    )
    layers = dataclasses.replace(model.layers, period=(jax.tree.map(lambda leaf: leaf[None], block),))
    x = np.random.default_rng(0).normal(size=(2, 6, 8))
    context = tfm.AttentionContext(jnp.broadcast_to(jnp.arange(6)[None], (2, 6)))
    model = dataclasses.replace(model, layers=layers, norm=None)
    actual = tfm.stack(model, CONFIG, jnp.asarray(x, jnp.float32), context)[0]

    def convolved(layer, y):
        kernel, bias = (np.asarray(leaf, np.float64) for leaf in (layer.weights, layer.bias))
        return oracle.depthwise(kernel, bias, normalized(layer.norm, y), (2, 3))

    y = convolved(params.first, x)
    y = convolved(params.second, y * (1 + np.vectorize(math.erf)(y / math.sqrt(2))) / 2)
    np.testing.assert_allclose(actual, x + np.asarray(params.scale) * y, rtol=1e-4, atol=1e-4)
