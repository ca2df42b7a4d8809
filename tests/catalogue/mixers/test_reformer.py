"""Reformer: its hashes, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import output, softmax
from oracles.clustered import shared_heads
from random_params import random_params
from variants import VARIANTS

import tfm
from tfm.catalogue.mixers.clustered.buckets import BucketedKeys
from tfm.catalogue.mixers.clustered.chunks import PADDING, cached_chunk_attention, chunk_attention, sort_chunks
from tfm.catalogue.mixers.clustered.reformer import hashes, torch_normals
from tfm.catalogue.options.mixers.clustered import Reformer

pytestmark = pytest.mark.slow


def test_hashes_are_equal_for_equal_directions():
    keys = np.random.default_rng(0).normal(size=(1, 500, 1, 1, 8)).astype(np.float32)
    rotations = np.random.default_rng(1).normal(size=(1, 1, 8, 4, 3)).astype(np.float32)
    labels = np.asarray(hashes(jnp.asarray(keys), jnp.asarray(rotations), (6,)))
    assert set(labels.ravel()) == set(range(6))
    np.testing.assert_array_equal(labels, hashes(jnp.asarray(3 * keys), jnp.asarray(rotations), (6,)))
    similar = keys + 0.1 * np.random.default_rng(2).normal(size=keys.shape).astype(np.float32)
    agreement = (labels == np.asarray(hashes(jnp.asarray(similar), jnp.asarray(rotations), (6,)))).mean()
    assert agreement > 0.8 > 3 * (labels[:, ::-1] == labels).mean()


def test_buckets_of_two_hashes_are_pairs():
    keys = jax.device_put(np.float32(np.random.default_rng(0).normal(size=(1, 50, 1, 1, 8))))
    rotations = jax.device_put(np.float32(np.random.default_rng(1).normal(size=(1, 1, 8, 2, 5))))
    first, second = (hashes(keys, part, (size,)) for part, size in ((rotations[..., :2], 4), (rotations[..., 2:], 6)))
    np.testing.assert_array_equal(hashes(keys, rotations, (4, 6)), first + 4 * second)


def test_numbers_of_a_seed():
    """The first ones that torch 2.13 draws with seed 7."""
    np.testing.assert_allclose(torch_normals(7, 336)[:3], [-0.8201345, 0.39563116, 0.8989085], atol=1e-6)


@pytest.mark.parity
@pytest.mark.parametrize("count", [16, 17, 50, 384])
def test_numbers_of_torch(count):
    import torch

    for seed in (0, 2**32 - 1):
        torch.manual_seed(seed)
        np.testing.assert_allclose(torch_normals(seed, count), torch.randn(count), atol=1e-6)


def test_a_text_of_one_chunk_is_full_attention():
    """Every token sees all others, and itself only where it is alone; with several rounds once."""
    config = tfm.override(VARIANTS["reformer_across"].config, {"mixer.chunk": 8})
    mixer = tfm.mixer_of(config.mixer)
    params = random_params(mixer.specs(config.mixer, config))
    x = jax.random.normal(jax.random.key(1), (2, 8, config.width))
    context = tfm.AttentionContext(jnp.arange(8)[None], causal=True)
    call = tfm.LayerCall(
        config.mixer, config, params, mixer.prepare(tfm.LayerCall(config.mixer, config), context), None
    )
    y, _ = mixer.forward(call, x, lambda q, k, projections: (q, k, None), None)
    q, v = shared_heads(params.attention, np.asarray(x, np.float64))
    scores = np.einsum("btkgh,bskgh->bkgts", q, q / np.linalg.norm(q, axis=-1, keepdims=True))
    i, j = np.indices((8, 8))
    seen = (j < i) | ((i == 0) & (j == 0))
    heads = np.einsum("bkgts,bskgh->btkgh", softmax(np.where(seen, scores, -np.inf)), v)
    np.testing.assert_allclose(y, output(params.attention, heads), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_token_that_is_generated_is_the_last_one_of_a_text(rounds):
    """With padding on the left of the second row; chunks of three in texts of up to eleven tokens."""
    rng = np.random.default_rng(0)
    q, k = (jax.device_put(np.float32(rng.normal(size=(2, 11, 2, 2, 4)))) for _ in range(2))
    v = jax.device_put(np.float32(rng.normal(size=(2, 11, 2, 4))))
    valid = jnp.arange(11)[None] >= jnp.array([[0], [2]])
    buckets = jax.device_put(np.int32(rng.integers(0, 4, (2, 11, 2, 2, rounds))))
    keys = BucketedKeys(k, v, jnp.where(valid[:, :, None, None, None], buckets, PADDING))
    state = jax.tree.map(lambda leaf: jnp.pad(leaf[:, :4], ((0, 0), (0, 3)) + ((0, 0),) * (leaf.ndim - 2)), keys)
    new = jax.tree.map(lambda leaf: leaf[:, 4:], keys)
    actual = cached_chunk_attention(q[:, 4:], new, state, 4, 3)
    for t in range(4, 11):
        text = jax.tree.map(lambda leaf, t=t: leaf[:, : t + 1], keys)
        chunks = sort_chunks(text.buckets, valid[:, : t + 1], 3, True)
        expected = chunk_attention(q[:, : t + 1], text.keys, text.values, chunks)[:, t]
        np.testing.assert_allclose(actual[:, t - 4], expected, rtol=1e-5, atol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match=r"^buckets=3 must be even; try buckets=4$"):
        Reformer(buckets=3)
    config = tfm.override(VARIANTS["reformer"].config, {"position": "alibi"})
    params = random_params(tfm.encoder_specs(config))
    with pytest.raises(tfm.VariantError, match="^reformer does not score all pairs of tokens; try position=learned"):
        tfm.decoder(params, config, jnp.zeros((1, 4), jnp.int32))
    with pytest.raises(ValueError, match="factor=3 must be even; try factor=4"):
        Reformer(factor=3)
