"""Kernels: a decoder's token is what an encoder makes of the text up to it; states have a constant size."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params
from variants import VARIANTS

import tfm

pytestmark = pytest.mark.slow

CONSTANT = ["linear", "performer", "aft_simple", "delta"]


def mixed(name, x, causal):
    """x [B,T,D] through the mixer of a row alone."""
    config = VARIANTS[name].config
    options, mixer = config.mixer, tfm.mixer_of(config.mixer)
    params = random_params(mixer.specs(options, config))
    positions = jnp.broadcast_to(jnp.arange(x.shape[1])[None], x.shape[:2])
    prepared = mixer.prepare(tfm.LayerCall(options, config), tfm.AttentionContext(positions, causal=causal))
    call = tfm.LayerCall(options, config, params, prepared, None)
    return mixer.forward(call, x, lambda q, k, projections: (q, k, None), None)[0]


@pytest.mark.parametrize("name", ["linear", "performer", "aft", "aft_local", "aft_simple"])
def test_a_decoder_is_an_encoder_of_what_it_has_read(name):
    x = jax.device_put(np.float32(np.random.default_rng(0).normal(size=(2, 8, 16))))
    y = mixed(name, x, causal=True)
    for length in (8, 5):
        np.testing.assert_allclose(y[:, length - 1], mixed(name, x[:, :length], causal=False)[:, -1], 1e-5, 1e-5)


@pytest.mark.parametrize("name", CONSTANT)
def test_the_state_has_the_same_size_for_every_text(name):
    config = VARIANTS[name].config
    params = tfm.abstract(tfm.causal_lm_specs(config)).decoder

    def sizes(length, slots):
        def states(params, tokens, starts):
            return tfm.prefill(params, config, tokens, starts, slots)[1].states

        shapes = jax.eval_shape(
            states, params, jax.ShapeDtypeStruct((2, length), jnp.int32), jax.ShapeDtypeStruct((2,), jnp.int32)
        )
        return [leaf.shape for leaf in jax.tree.leaves(shapes)]

    assert sizes(3, 8) == sizes(12, 16)


@pytest.mark.parametrize("name", ["aft", "aft_simple", "xca", "fnet"])
def test_positions_in_scores_are_refused(name):
    """By a mixer that has no scores, instead of being ignored."""
    config = tfm.override(VARIANTS[name].config, {"position": "rotary"})
    params = tfm.abstract(tfm.encoder_specs(config))
    tokens = jax.ShapeDtypeStruct((2, 8), jnp.int32)
    with pytest.raises(tfm.VariantError, match="has no scores of queries and keys"):
        jax.eval_shape(lambda params, tokens: tfm.encoder(params, config, tokens), params, tokens)


def test_features_are_drawn_where_all_threads_run_devices():
    """Two devices on at most two cores: neither may wait for a thread that the other one occupies."""
    code = """
import os
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
import jax
from tfm.catalogue.mixers.kernels.performer import orthogonal_features

jax.config.update("jax_num_cpu_devices", 2)
mesh = jax.make_mesh((2,), ("data",))
everywhere = jax.NamedSharding(mesh, jax.P(None, None, None))
with jax.set_mesh(mesh):
    draw = jax.jit(lambda key: orthogonal_features(key, (4, 64, 64), everywhere))
    for _ in range(20):
        draw(jax.random.key(0)).block_until_ready()
"""
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)
