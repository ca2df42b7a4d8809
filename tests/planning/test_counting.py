"""Floating-point operations of programs and of steps."""

import jax
import jax.numpy as jnp
import pytest
from small import job_of

import tfm
from tfm.attention.kernels.chunked import block_size
from train.planning import counting


@pytest.mark.parametrize("scan", [True, False])
def test_flops_of_an_encoder(scan):
    """Two a multiplication: projections, feed-forward, scores and their use; embeddings multiply nothing."""
    config = tfm.Config(layers=3, heads=4, kv_heads=2, width=32, ffn=80, vocab=100, scan=scan, dropout=0.0)
    rows, length, size = 5, 16, 8
    per_token = 32 * 32 + 2 * 32 * 2 * size + 32 * 32 + 2 * 32 * 80
    scores_and_values = 2 * length * 4 * size
    wanted = 2 * 3 * rows * length * (per_token + scores_and_values)
    params = tfm.abstract(tfm.encoder_specs(config))
    tokens = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    assert counting.flops(lambda params, tokens: tfm.encoder(params, config, tokens), params, tokens) == wanted


def test_flops_of_an_encoder_of_images():
    """Patches are multiplied once; the layers read them and [CLS]."""
    config = tfm.override(
        tfm.Config(layers=3, heads=4, width=32, ffn=80, dropout=0.0),
        {"input": "patches", "input.size": 12, "input.patch": 4, "input.channels": 3},
    )
    rows, patches, length = 5, 9, 10
    per_token = 4 * 32 * 32 + 2 * 32 * 80 + 2 * length * 32
    wanted = 2 * rows * patches * 4 * 4 * 3 * 32 + 2 * 3 * rows * length * per_token
    params = tfm.abstract(tfm.encoder_specs(config))
    pixels = jax.ShapeDtypeStruct((rows, 12, 12, 3), jnp.float32)
    assert counting.flops(lambda params, pixels: tfm.encoder(params, config, pixels), params, pixels) == wanted


def test_flops_of_all_devices():
    """A product whose rows are spread over four devices is as much work as on one."""
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:4])
    sharded = jax.shard_map(lambda x, w: x @ w, mesh=mesh, in_specs=(jax.P("data"), jax.P()), out_specs=jax.P("data"))
    x, w = jax.ShapeDtypeStruct((8, 16), jnp.float32), jax.ShapeDtypeStruct((16, 32), jnp.float32)
    assert counting.flops(sharded, x, w) == 2 * 8 * 16 * 32


@pytest.mark.slow
def test_flops_of_a_step():
    """Backward costs twice what forward does; a recomputed block costs its forward once more."""
    plain, remat = (job_of(*flags.split()) for flags in ("", "--batch.accumulate=2 --model.remat=block"))
    assert counting.model_flops(plain) == counting.model_flops(remat), "parts are as much as the whole"
    width, rows, length = 64, 16, 32
    blocks = 2 * rows * length * 2 * (12 * width * width + 2 * length * width)
    vocabulary = 2 * rows * length * width * 256
    assert counting.model_flops(plain) == 3 * (blocks + vocabulary)
    performed = counting.hardware_flops(plain)
    recomputed = counting.hardware_flops(remat)
    assert performed <= recomputed == pytest.approx(performed + blocks, rel=0.1)


def test_flops_of_chunks_that_a_pattern_leaves():
    """Two products for each block of keys that a block of queries visits: its own and the one before it."""
    q, k = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2, 512, 2, 3, 8), (2, 512, 2, 8)))
    mask = tfm.window(60, 0)
    size = block_size(jnp.zeros(q.shape), 512, mask)
    blocks = 512 // size
    wanted = (2 * blocks - 1) * 2 * 2 * size * size * 8 * (2 * 2 * 3)
    assert blocks > 1
    assert counting.flops(lambda q, k: tfm.chunked(q, k, k, mask), q, k) == wanted
