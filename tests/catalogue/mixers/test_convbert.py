"""Dynamic convolution against ConvBERT in transformers: both sum a window by kernels that each token computes.

What the kernels are computed from differs: ConvBERT reads a span around the token, and has no gates.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfm.catalogue.mixers.convolution import window_sum

pytestmark = pytest.mark.parity


def test_windows_of_dynamic_kernels_are_those_of_convbert():
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.ConvBertConfig(
        hidden_size=24, num_attention_heads=4, head_ratio=2, conv_kernel_size=5, attention_probs_dropout_prob=0.0
    )
    layer = transformers.models.convbert.modeling_convbert.ConvBertSelfAttention(config).eval()
    heads, size, outputs = layer.num_attention_heads, layer.attention_head_size, {}
    for name in ("conv_kernel_layer", "conv_out_layer"):
        getattr(layer, name).register_forward_hook(lambda _, inputs, y, name=name: outputs.update({name: y}))
    with torch.no_grad():
        mixed = layer(torch.randn(2, 9, 24))[0].numpy().reshape(2, 9, 2 * heads, size)
    logits = jnp.asarray(outputs["conv_kernel_layer"].numpy().reshape(2, 9, heads, 1, 5))
    channels = outputs["conv_out_layer"].numpy().reshape(2, 9, heads, 1, size)
    padded = jnp.pad(channels, ((0, 0), (2, 2), (0, 0), (0, 0), (0, 0)))
    sums = window_sum(padded, jax.nn.softmax(logits, axis=-1), None, 2)
    np.testing.assert_allclose(sums[:, :, :, 0], mixed[:, :, heads:], rtol=1e-5, atol=1e-6)
