"""Labels of relative positions: against a loop over pairs, whose gradients are derived by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import softmax
from oracles.patterns import RULES
from random_params import random_params
from variants import BASE

import tfm
from tfm.attention.kernels import block_sizes
from tfm.attention.project import swap_heads
from tfm.catalogue.options.patterns import Etc
from tfm.mixers.softmax import KeysValues, cached_attend, pattern_mask
from tfm.tables.patterns import pattern_of

pytestmark = pytest.mark.usefixtures("strict")

OPTIONS = Etc(radius=3, tokens=4, labels=2)
LENGTH, K, G, H = 21, 2, 2, 4
LENGTHS = {"packed": [6, 12, 3], "one text": [LENGTH]}


def arrays():
    """q, k, v, the vectors of labels, and the gradient of the output."""
    rng, rows = np.random.default_rng(0), (2, LENGTH)
    shapes = (*rows, K, G, H), (*rows, K, H), (*rows, K, H), (4 * OPTIONS.labels + 4, H), (*rows, K, G, H)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def label(i, j):
    """As the paper draws it: i and j count from the start of their text."""
    distance, count = min(max(j - i, -OPTIONS.labels), OPTIONS.labels) + OPTIONS.labels, 2 * OPTIONS.labels + 1
    if i < OPTIONS.tokens:
        return count + distance if j < OPTIONS.tokens else 2 * count
    return 2 * count + 1 if j < OPTIONS.tokens else distance


def loop(causal, lengths):
    """The output, and the gradients of q, k, v and vectors, query by query."""
    q, k, v, vectors, dy = (array.astype(np.float64) for array in arrays())
    y, *gradients = (np.zeros_like(array) for array in (q, q, k, v, vectors))
    dq, dk, dv, dvectors = gradients
    rule = RULES["etc"](OPTIONS, BASE, causal)
    places = np.concatenate([np.arange(length) for length in lengths])
    texts = np.repeat(np.arange(len(lengths)), lengths)
    for row, i, head, group in np.ndindex(2, LENGTH, K, G):
        seen = [j for j in np.flatnonzero(texts == texts[i]) if rule(places[i], places[j]) and (j <= i or not causal)]
        labels = [label(places[i], places[j]) for j in seen]
        query, keys, values = q[row, i, head, group], k[row, seen, head] + vectors[labels], v[row, seen, head]
        weights = softmax(keys @ query / 2)
        y[row, i, head, group] = weights @ values
        of_output = dy[row, i, head, group]
        dscores = weights * (values @ of_output - weights @ values @ of_output) / 2
        dq[row, i, head, group] = dscores @ keys
        dk[row, seen, head] += np.outer(dscores, query)
        dv[row, seen, head] += np.outer(weights, of_output)
        np.add.at(dvectors, labels, np.outer(dscores, query))
    return y, *gradients


def prepared(causal, lengths):
    """The context of rows of these texts, and their mask."""
    positions = jnp.asarray(np.concatenate([np.arange(length) for length in lengths]))[None]
    context = tfm.AttentionContext(positions, causal=causal, restarts=len(lengths) > 1)
    texts = jnp.asarray(np.repeat(np.arange(len(lengths)), lengths))[None]
    return context, pattern_mask(OPTIONS, BASE, context) & tfm.segments(texts)


def bias_of(context, q, vectors):
    return pattern_of(OPTIONS).bias(tfm.LayerCall(OPTIONS, BASE, vectors, context, None), q, None)


@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.slow), True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("texts", LENGTHS)
@pytest.mark.parametrize(
    "kernel", [tfm.attend, pytest.param(tfm.chunked, marks=pytest.mark.slow)], ids=["einsum", "chunked"]
)
def test_vectors_of_labels_are_added_to_keys(kernel, texts, causal, monkeypatch):
    monkeypatch.setattr(block_sizes, "SMALLEST", 4)
    monkeypatch.setattr(block_sizes, "SCORES", {"cpu": 1})
    context, mask = prepared(causal, LENGTHS[texts])

    @jax.jit
    def with_gradients(dy, *inputs):
        attend = lambda q, k, v, vectors: kernel(q, k, v, mask, bias_of(context, q, vectors))
        y, pullback = jax.vjp(attend, *inputs)
        return y, *pullback(dy)

    *inputs, dy = arrays()
    for actual, expected in zip(with_gradients(dy, *inputs), loop(causal, LENGTHS[texts]), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_cached_is_full():
    """Keys of a state, and several queries after it."""
    q, k, v, vectors, _ = map(jnp.asarray, arrays())
    expected, *_ = loop(True, [LENGTH])
    for length, count in ((3, 5), (12, 1)):
        positions = jnp.arange(length, length + count)[None]
        context = tfm.AttentionContext(positions, length=length, causal=True, restarts=True, keep=True)
        old, new = slice(length), slice(length, length + count)
        padded = (jnp.pad(x[:, old], ((0, 0), (0, LENGTH - length), (0, 0), (0, 0))) for x in (k, v))
        state = KeysValues(*map(swap_heads, padded))
        bias, mask = bias_of(context, q[:, new], vectors), pattern_mask(OPTIONS, BASE, context)
        y = cached_attend(q[:, new], (k[:, new], v[:, new]), state, length, mask, bias)
        np.testing.assert_allclose(y, expected[:, new], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_bias_of_positions_before_labels_stays_whole_on_a_mesh():
    """Its table has as many rows as the batch, but they are no texts."""
    values = {"mixer.pattern": "etc", "mixer.pattern.tokens": 4, "mixer.pattern.labels": 2, "kernel": "chunked"}
    config = tfm.override(BASE, values | {"position": "t5", "position.buckets": 8, "position.max_distance": 16})
    specs = tfm.encoder_specs(config)
    params = random_params(specs)
    tokens = jax.device_put(np.int32(np.random.default_rng(0).integers(0, 60, (8, 16))))
    expected, mesh = tfm.encoder(params, config, tokens), tfm.make_mesh(8)
    with jax.set_mesh(mesh):
        sharded = jax.device_put(tokens, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data")))
        run = jax.jit(lambda params, tokens: tfm.encoder(params, config, tokens))
        actual = run(jax.device_put(params, tfm.shardings(specs, mesh)), sharded)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
