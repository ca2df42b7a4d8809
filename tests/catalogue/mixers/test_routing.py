"""Routing attention whose centroids take their nearest tokens; that it is its plain form is in test_plain_forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts import TOKENS
from oracles import output, softmax
from oracles.clustered import shared_heads
from random_params import random_params
from variants import VARIANTS

import tfm

pytestmark = pytest.mark.slow

CONFIG = VARIANTS["routing_window"].config


def test_a_window_as_long_as_the_text_is_full_attention():
    config = tfm.override(CONFIG, {"mixer.window": 100})
    mixer = tfm.mixer_of(config.mixer)
    params = random_params(mixer.specs(config.mixer, config))
    x = np.random.default_rng(0).normal(size=(2, 8, 16))
    context = tfm.AttentionContext(tfm.default_positions(TOKENS))
    call = tfm.LayerCall(
        config.mixer, config, params, mixer.prepare(tfm.LayerCall(config.mixer, config), context), None
    )
    y, _ = mixer.forward(call, jnp.asarray(x, jnp.float32), lambda q, k, projections: (q, k, None), None)
    q, v = shared_heads(params.attention, x)
    q = (q - q.mean(-1, keepdims=True)) / np.sqrt(q.var(-1, keepdims=True) + 1e-6)
    weights = softmax(np.einsum("btkgh,bskgh->bkgts", q, q) * q.shape[-1] ** -0.5)
    heads = np.einsum("bkgts,bskgh->btkgh", weights, v)
    np.testing.assert_allclose(y, output(params.attention, heads), rtol=1e-5, atol=1e-5)


def test_refusals():
    params = tfm.abstract(tfm.encoder_specs(CONFIG))

    def run(function, mask=None):
        return jax.eval_shape(lambda params: function(params, CONFIG, TOKENS, mask), params)

    with pytest.raises(
        tfm.VariantError, match="^routing takes the nearest tokens of a whole text; a decoder needs mixer"
    ):
        run(tfm.decoder)
    with pytest.raises(tfm.VariantError, match="^routing takes the nearest tokens of a whole row; put every text into"):
        run(tfm.encoder, tfm.segments(jnp.ones((2, 8), jnp.int32)))
