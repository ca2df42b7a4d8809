"""What attention is, in other words: retrieval in a Hopfield network, a convolution, a function of earlier words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.usefixtures("strict")


def energy(patterns, state, beta):
    """Ramsauer et al. 2021, eq. 1, without its constants: patterns [S,H], state [H]."""
    scores = beta * patterns @ state
    return -np.log(np.exp(scores).sum()) / beta + 0.5 * state @ state


@pytest.mark.parametrize("beta", [0.01, 0.125, 1.0])
def test_an_update_of_a_hopfield_network_is_attention(beta):
    """Ramsauer et al. 2021, eq. 3, X softmax(beta X^T state), and its energy falls. Attention has beta = 1 / sqrt(H);
    any other one is a scale of the query."""
    rng = np.random.default_rng(0)
    patterns = rng.normal(size=(32, 64))
    state = patterns[3] + 0.3 * rng.normal(size=64)
    keys = jnp.asarray(patterns[None, :, None], jnp.float32)
    energies = [energy(patterns, state, beta)]
    for _ in range(3):
        query = jnp.asarray(beta * np.sqrt(64) * state[None, None, None], jnp.float32)
        weights = np.exp(beta * patterns @ state)
        state = patterns.T @ (weights / weights.sum())
        np.testing.assert_allclose(tfm.attend(query, keys, keys)[0, 0, 0], state, rtol=1e-4, atol=1e-5)
        energies.append(energy(patterns, state, beta))
    assert (np.diff(energies) < 1e-9).all()
    if beta == 1:
        np.testing.assert_allclose(state, patterns[3], atol=1e-4, err_msg="a sharp network finds the pattern")


def test_heads_express_a_convolution():
    """Cordonnier et al. 2020, theorem 1: nine heads, each of which sees one of the nearest nine pixels, by scores
    -alpha |key - query - offset|^2 of quadratic positions. At a border a convolution sees zeros, and a head a pixel."""
    size, channels, alpha = 6, 3, 20.0
    rng = np.random.default_rng(1)
    pixels = rng.normal(size=(size, size, channels)).astype(np.float32)
    kernel = rng.normal(size=(3, 3, channels, 4)).astype(np.float32)
    places = np.stack(np.meshgrid(*[np.arange(size)] * 2, indexing="ij"), -1).reshape(-1, 2)
    offsets = np.stack(np.meshgrid(*[np.arange(-1, 2)] * 2, indexing="ij"), -1).reshape(-1, 2)
    # Without what is the same for all keys: 2 alpha key . (query + offset) - alpha |key|^2.
    seen = 2 * alpha * (places[:, None] + offsets)  # [T,N,2]
    q = np.sqrt(3) * np.concatenate([seen, np.ones((len(places), 9, 1))], -1)  # attention divides by sqrt(H)
    k = np.concatenate([places, -alpha * np.square(places).sum(-1, keepdims=True)], -1)
    q, k, v = (
        jnp.asarray(x, jnp.float32)
        for x in (q[None], np.repeat(k[None, :, None], 9, 2), np.repeat(pixels.reshape(1, -1, 1, channels), 9, 2))
    )
    y = jnp.einsum("BTNh,NhE->BTE", tfm.attend(q, k, v), kernel.reshape(9, channels, 4))
    expected = jax.lax.conv_general_dilated(
        pixels[None], kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    inside = (slice(None), slice(1, -1), slice(1, -1))
    difference = np.abs(np.asarray(y).reshape(1, size, size, 4) - np.asarray(expected))
    assert difference[inside].max() < 1e-4
    assert difference.max() > 1


@pytest.mark.slow
def test_without_a_mask_later_words_change_earlier_ones():
    """So a decoder needs its mask in writing too, where nothing later is there to be hidden from a new word."""
    config = tfm.Config(layers=2, heads=2, width=16, ffn=24, vocab=20, pad_vocab_to=1, length=8, init_std=0.5)
    params = tfm.init(tfm.causal_lm_specs(config), jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (1, 8), 0, 20)
    decoder, encoder = (jax.jit(model, static_argnums=1) for model in (tfm.decoder, tfm.encoder))
    masked = [decoder(params.decoder, config, tokens[:, :length])[:, :5] for length in (5, 8)]
    np.testing.assert_allclose(*masked, rtol=1e-5, atol=1e-5)
    unmasked = [encoder(params.decoder, config, tokens[:, :length])[:, :5] for length in (5, 8)]
    assert np.abs(np.asarray(unmasked[0]) - np.asarray(unmasked[1])).max() > 0.1
