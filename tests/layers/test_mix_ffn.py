"""Feed-forward layers with a convolution over the grid of patches, against numpy."""

import jax.numpy as jnp
import numpy as np
import pytest
from oracles import grid as oracle
from random_params import random_params
from scipy.special import erf

import tfm
from tfm.catalogue.feed_forwards import mix_ffn

IMAGES = {"input": "patches", "input.size": 6, "input.image_width": 8, "input.patch": 2, "input.cls": False}
BASE = tfm.override(tfm.Config(layers=1, heads=2, width=6, ffn=10, dropout=0.0), IMAGES | {"feed_forward": "mix_ffn"})


def context_of(x, mask=None):
    return tfm.AttentionContext(tfm.default_positions(x), mask)


def test_a_convolution_stands_between_both_maps():
    params = random_params(mix_ffn.specs(BASE.feed_forward, BASE), std=0.5)
    x = np.random.default_rng(0).normal(size=(2, 12, 6)).astype(np.float32)
    actual = mix_ffn.forward(tfm.LayerCall(BASE.feed_forward, BASE, params), jnp.asarray(x), context_of(x))
    up, down = ((np.asarray(layer.kernel, np.float64), np.asarray(layer.bias)) for layer in (params.up, params.down))
    weights, bias = (np.asarray(leaf, np.float64) for leaf in (params.convolution.weights, params.convolution.bias))
    hidden = oracle.depthwise(weights, bias, x @ up[0] + up[1], (3, 4))
    expected = hidden * (1 + erf(hidden / np.sqrt(2))) / 2 @ down[0] + down[1]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_what_has_no_grid_is_refused():
    with pytest.raises(ValueError, match="feed_forward=mix_ffn needs a grid of patches"):
        tfm.override(tfm.Config(), {"feed_forward": "mix_ffn"})
    with pytest.raises(ValueError, match="activation=swiglu has a gate, and feed_forward=mix_ffn has none"):
        tfm.override(BASE, {"activation": "swiglu"})
    with pytest.raises(ValueError, match="kernel=4 must be odd; try kernel=5"):
        tfm.override(BASE, {"feed_forward.kernel": 4})
    x = jnp.zeros((1, 12, 6))
    call = tfm.LayerCall(BASE.feed_forward, BASE, random_params(mix_ffn.specs(BASE.feed_forward, BASE)))
    with pytest.raises(ValueError, match="mix_ffn is for encoders of images, all of which are read in full"):
        mix_ffn.forward(call, x, context_of(x, tfm.padding(jnp.ones((1, 12), bool))))
