"""Memory-compressed attention: what a decoder's token sees, and the size of its state."""

import contracts
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from variants import VARIANTS

import tfm
from tfm.config.mixers import Compressed

pytestmark = pytest.mark.slow


def test_a_decoder_against_a_loop():
    """A token sees the merged keys of the groups of 3 before its own, and the tokens of its own group up to itself."""
    config = VARIANTS["compressed"].config
    options, mixer = config.mixer, tfm.mixer_of(config.mixer)
    params = contracts.parameters(mixer.specs(options, config))
    x = np.random.default_rng(0).normal(size=(2, 8, 16))
    context = tfm.AttentionContext(jnp.arange(8)[None].repeat(2, 0), causal=True)
    call = tfm.LayerCall(options, config, params, mixer.prepare(options, config, context), None)
    y, _ = mixer.forward(call, jnp.asarray(x, jnp.float32), lambda q, k, projections: (q, k, None), None)
    q, *keys_values = oracles.heads(params.attention, x)

    def seen(rows, layer, t):
        """[B,S,K,G,H]: what token t sees of keys or values."""
        first = t - t % 3
        kernel, bias = np.asarray(layer.kernel), np.asarray(layer.bias)
        merged = [
            np.einsum("bckgh,chke->bkge", rows[:, start : start + 3], kernel) + bias[:, None]
            for start in range(0, first, 3)
        ]
        return np.stack([*merged, *np.moveaxis(rows[:, first : t + 1], 1, 0)], axis=1)

    heads = np.empty_like(q)
    for t in range(8):
        k, v = (seen(rows, layer, t) for rows, layer in zip(keys_values, (params.keys, params.values), strict=True))
        weights = oracles.softmax(np.einsum("bkgh,bskgh->bkgs", q[:, t], k) * 4**-0.5)
        heads[:, t] = np.einsum("bkgs,bskgh->bkgh", weights, v)
    np.testing.assert_allclose(y, oracles.output(params.attention, heads), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("values", "rows"), [({"mixer.factor": 4}, 4), ({"mixer.memory": 3}, 3)])
def test_the_state_has_a_row_for_every_group(values, rows):
    """16 slots in groups of 4 tokens, and in 3 groups of at most 6."""
    config = tfm.override(VARIANTS["compressed"].config, values)
    params = tfm.abstract(tfm.causal_lm_specs(config)).decoder
    tokens, starts = jax.ShapeDtypeStruct((2, 3), jnp.int32), jax.ShapeDtypeStruct((2,), jnp.int32)
    cache = jax.eval_shape(lambda *inputs: tfm.prefill(inputs[0], config, *inputs[1:], 16)[1], params, tokens, starts)
    (state,) = cache.states.period
    assert state.keys.shape == (3, 2, rows, 2, 4)


def test_groups_grow_with_the_length_where_memory_is_fixed():
    sizes = [Compressed(memory=64).group_size(tfm.Config(length=length)) for length in (64, 100, 4096)]
    assert sizes == [1, 2, 64]
