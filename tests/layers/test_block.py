from functools import partial

import jax
import numpy as np
import pytest
from layers.blocks import context_of, run_block

import tfm
from tfm.norms import norm

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.Config(layers=1, heads=2, width=8, ffn=12, dropout=0.0)


@partial(jax.jit, static_argnums=1)
def output(layer, config, x, mask=None, key=None):
    """x [B,T,D] -> what the block returns for it."""
    return run_block(layer, config, x, context_of(x, mask), key)[0]


def block_of(config, fill):
    return fill(tfm.block_specs(config.kinds[0], config))


def inputs(config):
    return np.random.default_rng(1).normal(size=(2, 5, config.width)).astype(np.float32)


@pytest.mark.parametrize("name", ["layer", "rms"])
def test_post_norm_normalizes_the_sum(fill, name):
    config = tfm.override(CONFIG, {"residual": "post", "norm": name, "position": "alibi"})
    layer, x, mask = block_of(config, fill), inputs(config), tfm.causal()
    attended = tfm.multi_head_attention(layer.mixer, config, x, mask, tfm.alibi(2))
    y = norm(config, layer.residual.mixer, x + attended)
    fed = tfm.feed_forward(layer.feed_forward, config, y)
    expected = norm(config, layer.residual.feed_forward, y + fed)
    np.testing.assert_allclose(output(layer, config, x, mask), expected, rtol=1e-5, atol=1e-5)


def test_pre_norm_normalizes_what_a_sublayer_reads(fill):
    config = tfm.override(CONFIG, {"residual": "pre", "position": "alibi"})
    layer, x, mask = block_of(config, fill), inputs(config), tfm.causal()
    read = norm(config, layer.residual.mixer, x)
    y = x + tfm.multi_head_attention(layer.mixer, config, read, mask, tfm.alibi(2))
    expected = y + tfm.feed_forward(layer.feed_forward, config, norm(config, layer.residual.feed_forward, y))
    np.testing.assert_allclose(output(layer, config, x, mask), expected, rtol=1e-5, atol=1e-5)


def test_pre_norm_may_leave_what_the_mixer_reads_as_it_is(fill):
    config = tfm.override(CONFIG, {"residual": "pre", "residual.mixer_norm": False})
    layer, x = block_of(config, fill), inputs(config)
    assert layer.residual.mixer is None
    y = x + tfm.multi_head_attention(layer.mixer, config, x)
    expected = y + tfm.feed_forward(layer.feed_forward, config, norm(config, layer.residual.feed_forward, y))
    np.testing.assert_allclose(output(layer, config, x), expected, rtol=1e-5, atol=1e-5)


def test_pre_norm_keeps_the_residual_when_everything_is_dropped(fill):
    """With nearly all dropped, a pre-norm block is the identity almost everywhere: dropout is on the branch."""
    config = tfm.override(CONFIG, {"residual": "pre", "dropout": 0.999})
    layer, x = block_of(config, fill), inputs(config)
    same = np.asarray(output(layer, config, x, key=jax.random.key(0))) == x
    assert same.mean() > 0.9


def test_dropout_is_on_with_a_key_only(fill):
    config = tfm.override(CONFIG, {"dropout": 0.5})
    layer, x = block_of(config, fill), inputs(config)
    plain = output(layer, config, x)
    first, same, different = (output(layer, config, x, key=jax.random.key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, different)
    assert not np.allclose(first, plain)


def test_parallel_sublayers_read_the_same(fill):
    """x + attention(norm(x)) + feed-forward(norm(x)), with a norm each."""
    config = tfm.override(CONFIG, {"residual": "parallel"})
    layer, x = block_of(config, fill), inputs(config)
    norms = layer.residual
    attended = tfm.multi_head_attention(layer.mixer, config, tfm.layer_norm(norms.mixer, x, config.norm_eps))
    fed = tfm.feed_forward(layer.feed_forward, config, tfm.layer_norm(norms.feed_forward, x, config.norm_eps))
    np.testing.assert_allclose(output(layer, config, x), x + attended + fed, rtol=1e-5, atol=1e-5)


def test_a_block_records_what_it_reads_and_where_it_looks(fill):
    layer, x = block_of(CONFIG, fill), inputs(CONFIG)
    context = context_of(x, tfm.causal(), record=True, record_inputs=True)
    y, recorded = jax.jit(lambda layer, x, context: run_block(layer, CONFIG, x, context))(layer, x, context)
    np.testing.assert_allclose(y, output(layer, CONFIG, x, tfm.causal()), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(recorded.inputs, x)
    q = tfm.linear(layer.mixer.query, "BTD,DKGH->BTKGH", x)
    k = tfm.linear(layer.mixer.key, "BTD,DKH->BTKH", x)
    np.testing.assert_allclose(recorded.weights, tfm.attention_weights(q, k, tfm.causal()), rtol=1e-5, atol=1e-6)
    assert recorded.state is None
    assert recorded.cross_weights is None


def test_parameters_on_residual_branches_are_marked():
    """What scales the output of a sublayer; initializers of deep models ask for it."""
    config = tfm.override(CONFIG, {"activation": "swiglu", "mixer.qk_norm": True})
    specs = tfm.block_specs(config.kinds[0], config, cross=True)
    leaves = jax.tree_util.tree_leaves_with_path(specs)
    marked = {jax.tree_util.keystr(path, simple=True, separator=".") for path, spec in leaves if spec.branch}
    attention = {f"{part}.{name}.kernel" for part in ("mixer", "cross") for name in ("value", "output")}
    assert marked == attention | {f"feed_forward.{name}.kernel" for name in ("up", "gate", "down")}
    inputs = {jax.tree_util.keystr(path, simple=True, separator="."): spec.inputs for path, spec in leaves}
    assert inputs["mixer.query.kernel"] == inputs["feed_forward.down.kernel"] == 1
    assert inputs["mixer.output.kernel"] == inputs["cross.output.kernel"] == 3
    assert {inputs[name] for name in inputs if not name.endswith("kernel")} == {0}
