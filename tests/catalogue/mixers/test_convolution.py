"""Light and dynamic convolutions; that they are their definitions is in the contracts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.catalogue.mixers.convolution import window_sum

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]


@pytest.mark.parametrize(("causal", "reads"), [(True, {2, 3, 4, 5}), (False, {3, 4, 5, 6})])
def test_a_token_reads_its_window_alone(causal, reads):
    """By gradient: a decoder's token itself and those before it, an encoder's tokens on both sides."""
    config = tfm.override(
        tfm.Config(layers=1, heads=2, width=4, vocab=60, dropout=0.0), {"mixer": "lightconv", "mixer.window": 4}
    )
    mixer = tfm.mixer_of(config.mixer)
    params = jax.tree.map(lambda spec: jnp.ones(spec.shape), mixer.specs(config.mixer, config))
    context = tfm.AttentionContext(jnp.arange(9)[None], causal=causal)
    call = tfm.LayerCall(
        config.mixer, config, params, mixer.prepare(tfm.LayerCall(config.mixer, config), context), None
    )
    x = jax.device_put(np.float32(np.random.default_rng(0).normal(size=(1, 9, 4))))
    slope = jax.jit(jax.grad(lambda x: mixer.forward(call, x, None, None)[0][0, 5].sum()))(x)
    assert set(np.flatnonzero(np.abs(slope).sum((0, 2)))) == reads


def test_dropped_weights_are_those_of_kernels():
    """DropConnect with weights of a half: each is 0 or 1, the same for all channels of a head."""
    weights = tfm.dropout(jnp.full((1, 3, 1, 1, 2), 0.5), 0.5, jax.random.key(1))
    y = window_sum(jnp.ones((1, 4, 1, 1, 5)), weights, None, 1)
    np.testing.assert_allclose(y, jnp.broadcast_to(weights.sum(-1, keepdims=True), y.shape))


@pytest.mark.parametrize("tag", ["lightconv", "dynamicconv"])
def test_a_decode_state_is_the_last_inputs(tag):
    config = tfm.override(
        tfm.Config(layers=2, heads=4, kv_heads=2, width=8, vocab=60, dropout=0.0),
        {"mixer": tag, "mixer.window": 6},
    )
    model = tfm.abstract(tfm.encoder_specs(config))
    tokens = jax.ShapeDtypeStruct((3, 4), jnp.int32)  # fewer than the window
    for slots in (8, 500):
        cache = jax.eval_shape(
            lambda model, tokens, slots=slots: tfm.prefill(model, config, tokens, jnp.zeros(3, jnp.int32), slots)[1],
            model,
            tokens,
        )
        assert [leaf.shape for leaf in jax.tree.leaves(cache.states)] == [(2, 3, 5, 2, 2, 2)]


@pytest.mark.parametrize("tag", ["lightconv", "dynamicconv", "gru", "lstm"])
def test_masks_of_pairs_are_refused(tag):
    config = tfm.override(tfm.Config(layers=1, heads=2, width=4, vocab=60), {"mixer": tag})
    params = tfm.abstract(tfm.encoder_specs(config))
    with pytest.raises(tfm.VariantError, match=f"{tag} reads texts with padding and segments, and no other mask"):
        jax.eval_shape(
            lambda params: tfm.encoder(params, config, jnp.zeros((1, 4), jnp.int32), tfm.window(1, 1)), params
        )
