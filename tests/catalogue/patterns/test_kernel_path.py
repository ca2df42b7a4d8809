"""Patterns in chunked attention, which skips blocks, against dense attention under masks that numpy draws by pairs.

Labels of etc are in test_etc, and the blocks of folders of transformers in test_bigbird.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogue.patterns.test_patterns import CONFIG, LENGTH, OPTIONS, mask_of, slow_but
from flax import struct
from oracles.patterns import rule_of, table
from variants import VARIANTS

import tfm
from tfm.attention.attend import Heads
from tfm.attention.kernels import block_sizes, passes
from tfm.catalogue.options.patterns import Sliding, Transient
from tfm.catalogue.patterns import transient
from tfm.tables.patterns import pattern_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
VALID = np.arange(LENGTH) < np.array([[LENGTH], [LENGTH - 4]])
TEXTS = [7, 20, 18]


@struct.dataclass
class Drawn(tfm.Mask):
    """A mask of all positions, bool [B or 1,T,S]."""

    allowed: jax.Array

    def __call__(self, i, j):
        return self.allowed


@struct.dataclass
class DrawnForHeads(tfm.ScoreBias):
    """A bias that forbids pairs in each head: allowed [1,K,G,T,S]."""

    allowed: jax.Array

    def __call__(self, i, j):
        return jnp.where(self.allowed, 0, -1e30)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(block_sizes, "SMALLEST", 4)
    monkeypatch.setattr(block_sizes, "SCORES", {"cpu": 1})
    monkeypatch.setattr(passes, "BLOCK", 4)


def arrays():
    """q, k, v and the gradient of the output."""
    rng, shapes = np.random.default_rng(0), ((2, 2, 4), (2, 4), (2, 4), (2, 2, 4))
    return [jax.device_put(np.float32(rng.normal(size=(2, LENGTH, *shape)))) for shape in shapes]


def values_and_gradients(kernel, mask, bias=None, seen=True):
    """The output and the gradients of q, k and v, where queries see something: bool [B or 1,T]."""
    *inputs, weights = arrays()
    seen = jnp.asarray(seen)[..., None, None, None]
    attend = lambda q, k, v: jnp.where(seen, kernel(q, k, v, mask, bias), 0)
    y, pullback = jax.vjp(jax.jit(attend), *inputs)
    return y, *pullback(weights)


def assert_close(actual, expected):
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, **CLOSE)


def drawn(options, causal, texts=None):
    """bool [T,S]: what the rule of a pattern allows in rows of these texts."""
    rule, texts = rule_of(options, CONFIG, causal), [LENGTH] if texts is None else texts
    allowed = np.zeros((LENGTH, LENGTH), bool)
    for end, length in zip(np.cumsum(texts), texts, strict=True):
        allowed[end - length : end, end - length : end] = table(rule, length)
    return allowed


@pytest.mark.parametrize("causal", [pytest.param(False, id="encoder", marks=pytest.mark.slow), True])
@pytest.mark.parametrize("name", slow_but("strided"))
def test_padded_rows(name, causal):
    """With a bias too."""
    pattern, mask = mask_of(OPTIONS[name], causal), tfm.padding(jnp.asarray(VALID))
    mask = mask if pattern is None else pattern & mask
    if name == "strided":
        assert [part.order is None for part in passes.passes(mask, LENGTH, LENGTH)] == [True, False]
    allowed = drawn(OPTIONS[name], causal) & VALID[:, None]
    actual = values_and_gradients(tfm.chunked, mask, tfm.alibi(4, 2), allowed.any(-1))
    assert_close(actual, values_and_gradients(tfm.attend, Drawn(allowed), tfm.alibi(4, 2), allowed.any(-1)))


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("name", slow_but("places"))
def test_packed_rows(name, causal):
    places = jnp.asarray(np.concatenate([np.arange(length) for length in TEXTS]))[None]
    mask = tfm.segments(jnp.asarray(np.repeat(np.arange(len(TEXTS)), TEXTS))[None])
    pattern = mask_of(OPTIONS[name], causal, True, places)
    actual = values_and_gradients(tfm.chunked, mask if pattern is None else pattern & mask)
    assert_close(actual, values_and_gradients(tfm.attend, Drawn(drawn(OPTIONS[name], causal, TEXTS)[None])))


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
def test_heads_with_windows_of_their_own(causal):
    options = Sliding(window=5, dilation=3, dilated_heads=1)
    context = tfm.AttentionContext(jnp.arange(LENGTH)[None], causal=causal)
    bias = pattern_of(options).bias(tfm.LayerCall(options, CONFIG, None, context, None), None, None)
    allowed = [drawn(dataclasses.replace(options, dilation=1, dilated_heads=None), causal)] * 3
    allowed = np.stack([*allowed, drawn(options, causal)]).reshape(1, 2, 2, LENGTH, LENGTH)
    actual = values_and_gradients(tfm.chunked, mask_of(options, causal), bias)
    assert_close(actual, values_and_gradients(tfm.attend, None, DrawnForHeads(jnp.asarray(allowed))))


def test_keys_of_blocks():
    """Gradients of states too, of which the keys of blocks are made."""
    options, config = Transient(radius=3, block=8), VARIANTS["transient"].config
    q, k, v, weights = arrays()
    rng, count = np.random.default_rng(1), LENGTH // options.block
    x = jax.device_put(np.float32(rng.normal(size=(2, LENGTH, config.width))))
    matrices = jax.device_put(np.float32(rng.normal(size=(2, config.width, 2, 4)) / 4))
    params = tfm.init(pattern_of(options).specs(options, config), jax.random.key(0))
    project = lambda x: tuple(jnp.einsum("BTD,DKH->BTKH", x, matrix) for matrix in matrices)
    mask = pattern_of(options).mask(options, config, False)

    def extended(q, k, v, x):
        call = tfm.LayerCall(options, config, params, tfm.AttentionContext(jnp.arange(LENGTH)[None]), None)
        return tfm.chunked(*transient.extend(call, x, Heads(q, k, v, mask), project)[:4])

    def dense(q, k, v, x):
        starts = range(0, count * options.block, options.block)
        stops = [*starts[1:], LENGTH]  # the last block is longer
        sums = jnp.stack([x[:, start:stop].sum(1) for start, stop in zip(starts, stops, strict=True)], axis=1)
        centered = sums - sums.mean(-1, keepdims=True)
        blocks = project(centered / jnp.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12))
        allowed = np.concatenate([drawn(options, False), np.ones((LENGTH, count), bool)], axis=1)
        keys, values = (jnp.concatenate(pair, axis=1) for pair in zip((k, v), blocks, strict=True))
        return tfm.attend(q, keys, values, Drawn(allowed[None]))

    results = []
    for attend in (extended, dense):
        y, pullback = jax.vjp(jax.jit(attend), q, k, v, x)
        results.append((y, *pullback(weights)))
    assert_close(*results)
