"""What attention refuses: arrays and masks that do not fit, in the words of the caller."""

import jax
import jax.numpy as jnp
import pytest
from random_params import random_params

import tfm

B, T, S, K, G, H = 2, 5, 7, 2, 3, 4
SHAPES = {"q": (B, T, K, G, H), "k": (B, S, K, H), "v": (B, S, K, H)}


def call(attention, mask=None, options=None, **shapes):
    """Attention on zeros, in some of these shapes."""
    q, k, v = (jnp.zeros(shape) for shape in (SHAPES | shapes).values())
    return attention(q, k, v, mask, **(options or {}))


@pytest.mark.parametrize("attention", [tfm.attend, tfm.chunked])
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"q": (T, K, H)}, r"q must be \[B,T,K,G,H\] or \[B,T,N,H\], k and v \[B,S,K,H\]; shapes are q \(5, 2, 4\)"),
        ({"v": (B, T, K, H)}, "v must have the batch, the length and the heads of k"),
        ({"k": (1, S, K, H), "v": (1, S, K, H)}, "q and k must have the same batch"),
        ({"k": (B, S, K, 8), "v": (B, S, K, 8)}, "heads of q and k must have the same size"),
        ({"k": (B, S, 1, H), "v": (B, S, 1, H)}, r"q \[B,T,K,G,H\] and k \[B,S,K,H\] must have the same K heads"),
        ({"q": (B, T, 5, H)}, "q has 5 heads, which k's 2 must divide"),
    ],
)
def test_shapes_that_do_not_fit(attention, shapes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call(attention, **shapes)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (tfm.padding(jnp.ones((B, 3))), r"padding: valid must be \[2,7\], for 7 keys, not \[2, 3\]"),
        (tfm.causal() & tfm.padding(jnp.ones((B, S + 1))), r"padding: valid must be \[2,7\]"),
        (tfm.causal() | tfm.padding(jnp.ones((3, S))), r"padding: valid must be \[2,7\], for 7 keys, not \[3, 7\]"),
        (tfm.segments(jnp.ones((B, T))), r"segments: ids of keys must be \[2,7\], for 7 keys, not \[2, 5\]"),
        (tfm.segments(jnp.ones((B, S)), jnp.ones((B, S))), r"segments: ids of queries must be \[2,5\], for 5 queries"),
        (tfm.prefix(jnp.ones(3)), r"prefix: lengths must be \[2\], not \[3\]"),
        (tfm.left_padding(jnp.ones((B, 1))), r"left_padding: starts must be \[2\], not \[2, 1\]"),
    ],
)
def test_masks_that_do_not_fit(mask, message):
    for attention in (tfm.attend, tfm.chunked):
        with pytest.raises(ValueError, match=f"^{message}"):
            call(attention, mask)


def test_a_mask_of_one_row_is_for_all():
    assert call(tfm.attend, tfm.padding(jnp.ones((1, S))) & tfm.prefix([3])).shape == SHAPES["q"]


def test_a_mask_is_dense_at_its_own_length_alone():
    with pytest.raises(ValueError, match=r"^padding: valid must be \[B,5\], for 5 keys, not \[1, 3\]"):
        tfm.padding(jnp.zeros((1, 3))).dense(5)
    assert tfm.causal().dense(3, 0).shape == (1, 3, 0)


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2.0])
def test_rates(rate):
    with pytest.raises(ValueError, match=f"^rate={rate} must be at least 0 and less than 1"):
        call(tfm.attend, options={"rate": rate, "key": jax.random.key(0)})


@pytest.mark.parametrize(
    "shapes", [{"q": (0, T, K, G, H), "k": (0, S, K, H), "v": (0, S, K, H)}, {"q": (B, 0, K, G, H)}]
)
def test_chunks_of_nothing(shapes):
    assert call(tfm.chunked, **shapes).shape == call(tfm.attend, **shapes).shape


def test_alibi_needs_heads():
    for arguments in ((0,), (4, 3), (4, 0)):
        with pytest.raises(ValueError, match=r"^heads=. must be at least 1, and kv_heads=. must divide it"):
            tfm.alibi(*arguments)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([[1, 2]], "tokens must be an array \\[B,T\\], not a list; wrap it in jnp.array"),
        (jnp.ones((2, 3), bool), "tokens must be integers \\[B,T\\], not bool \\[2, 3\\]"),
        (jnp.ones((2, 3)), "tokens must be integers \\[B,T\\], not float32 \\[2, 3\\]"),
        (jnp.ones(3, int), "tokens must be integers \\[B,T\\], not int32 \\[3\\]"),
    ],
)
def test_tokens_that_are_none(tokens, message):
    config = tfm.Config(layers=1, heads=2, width=8, vocab=20, length=8)
    params = random_params(tfm.encoder_specs(config))
    with pytest.raises(ValueError, match=f"^{message}"):
        tfm.encoder(params, config, tokens)
    with pytest.raises(ValueError, match=r"^types must have the shape \[2, 3\] of the tokens, not \[2, 4\]"):
        tfm.encoder(params, config, jnp.ones((2, 3), int), types=jnp.ones((2, 4), int))


def test_targets_outside_the_vocabulary_have_no_loss():
    losses = tfm.cross_entropy(jnp.zeros((4, 3)), jnp.array([0, 2, 3, -1]))
    assert jnp.isnan(losses).tolist() == [False, False, True, True]
    with pytest.raises(ValueError, match=r"^logits must be \[...,V\] and targets \[...\]; shapes are"):
        tfm.cross_entropy(jnp.zeros((2, 3, 5)), jnp.zeros((2, 1), int))
