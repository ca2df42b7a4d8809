"""Scores of Transformer-XL against those of XLNet in transformers, which has the same positions."""

import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.catalogue.positions.transformer_xl import GlobalQueries
from tfm.ops import Linear

pytestmark = pytest.mark.parity

HEADS, SIZE, LENGTH = 3, 4, 9


@pytest.fixture
def xlnet():
    """A model of one layer with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.XLNetConfig(
        vocab_size=20, d_model=HEADS * SIZE, n_layer=1, n_head=HEADS, d_inner=16, attn_type="uni", dropout=0.0
    )
    model = transformers.XLNetModel(config).eval()
    with torch.no_grad():
        for values in model.parameters():
            values.normal_(0, 0.4)
    return model


def test_weights_of_a_decoder_are_those_of_xlnet(xlnet):
    import torch

    layer, x = xlnet.layer[0].rel_attn, torch.randn(LENGTH, 2, HEADS * SIZE)
    later = torch.triu(torch.ones(LENGTH, LENGTH), 1)[:, :, None, None]
    with torch.no_grad():
        waves = xlnet.relative_positional_encoding(LENGTH, LENGTH, bsz=2)
        *_, expected = layer(x, None, later, None, waves, None, output_attentions=True)
        q, k = (torch.einsum("ibh,hnd->bind", x, kernel).numpy() for kernel in (layer.q, layer.k))
    content, distance = (values.detach().numpy()[:, None] for values in (layer.r_w_bias, layer.r_r_bias))
    config = tfm.override(tfm.Config(width=HEADS * SIZE, heads=HEADS), {"position": "transformer_xl"})
    position, context = tfm.position_of(config.position), tfm.AttentionContext(jnp.arange(LENGTH)[None], causal=True)
    queries = GlobalQueries(jnp.asarray(content), jnp.asarray(distance))
    prepared = position.prepare(tfm.LayerCall(config.position, config, queries), context)
    projection = Linear(jnp.asarray(layer.r.detach().numpy()), None)
    call = tfm.LayerCall(config.position, config, projection, prepared, None)
    moved, k, bias = position.score(call, jnp.asarray(q)[:, :, :, None], jnp.asarray(k), None)
    weights = tfm.attention_weights(moved, k, tfm.causal(), bias)
    np.testing.assert_allclose(weights[:, :, 0], np.einsum("ijbn->bnij", expected.numpy()), rtol=1e-5, atol=1e-6)
