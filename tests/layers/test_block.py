import jax
import numpy as np
import pytest

import tfm
from tfm import ops

pytestmark = pytest.mark.usefixtures("strict", "quick")


def normed(config, layer, x):
    return ops.NORMS[config.norm](layer, x, config.norm_eps)


def inputs(config):
    return np.random.default_rng(1).normal(size=(2, 5, config.width)).astype(np.float32)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_post_norm_normalizes_the_sum(fill, norm):
    config = tfm.Config(heads=2, width=8, norm=norm, order="post", dropout=0.0)
    block, x, mask, bias = fill(tfm.block_specs(config)), inputs(config), tfm.causal(), tfm.alibi(2)
    y = normed(config, block.attn_norm, x + tfm.multi_head_attention(block.attn, config, x, mask, bias))
    expected = normed(config, block.ffn_norm, y + tfm.feed_forward(block.ffn, config, y))
    np.testing.assert_allclose(
        tfm.transformer_block(block, config, x, tfm.Dense(mask, bias))[0], expected, rtol=1e-5, atol=1e-5
    )


def test_pre_norm_normalizes_what_a_sublayer_reads(fill):
    config = tfm.Config(heads=2, width=8, order="pre", dropout=0.0)
    block, x, mask, bias = fill(tfm.block_specs(config)), inputs(config), tfm.causal(), tfm.alibi(2)
    y = x + tfm.multi_head_attention(block.attn, config, normed(config, block.attn_norm, x), mask, bias)
    expected = y + tfm.feed_forward(block.ffn, config, normed(config, block.ffn_norm, y))
    np.testing.assert_allclose(
        tfm.transformer_block(block, config, x, tfm.Dense(mask, bias))[0], expected, rtol=1e-5, atol=1e-5
    )


def test_pre_norm_keeps_the_residual_when_everything_is_dropped(fill):
    """With nearly all dropped, a pre-norm block is the identity at nearly all places: dropout stands inside the residual branch."""
    config = tfm.Config(heads=2, width=8, order="pre", dropout=0.999)
    block, x = fill(tfm.block_specs(config)), inputs(config)
    same = np.asarray(tfm.transformer_block(block, config, x, key=jax.random.key(0))[0]) == x
    assert same.mean() > 0.9


def test_dropout_is_on_with_a_key_only(fill):
    config = tfm.Config(heads=2, width=8, dropout=0.5)
    block, x = fill(tfm.block_specs(config)), inputs(config)
    plain, one, same, other = (
        tfm.transformer_block(block, config, x, key=key)[0] for key in (None, *map(jax.random.key, (0, 0, 1)))
    )
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)
    assert not np.allclose(one, plain)


def test_parallel_sublayers_read_the_same(fill):
    """x + attention(norm(x)) + feed-forward(other norm(x))."""
    config = tfm.Config(layers=1, heads=2, width=8, order="parallel", dropout=0.0)
    layer, x = fill(tfm.block_specs(config)), inputs(config)
    attended = tfm.multi_head_attention(layer.attn, config, tfm.layer_norm(layer.attn_norm, x, config.norm_eps))
    fed = tfm.feed_forward(layer.ffn, config, tfm.layer_norm(layer.ffn_norm, x, config.norm_eps))
    np.testing.assert_allclose(tfm.transformer_block(layer, config, x)[0], x + attended + fed, rtol=1e-5, atol=1e-5)
