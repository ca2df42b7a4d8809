"""Operations of every mixer and of every pattern, by formulas of their own, in a model with few tokens."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.patterns import RULES, rule_of, table
from variants import BASE, VARIANTS

import tfm
from tfm.catalogue.grid import depthwise
from tfm.config.mixers import Softmax
from tfm.masks.mask import visible_pairs
from tfm.options.choices import alternatives, type_hints
from train.planning.counting import flops, needed_flops

T, D, A, N, K, H, F = 12, 16, 16, 4, 2, 4, 24  # A = N H; K H channels of keys
KEYS = K * H
PROJECTIONS = 2 * T * D * (A + KEYS + KEYS + A)
SHARED = 2 * T * D * (A + KEYS + A)  # queries are keys
SCORES = 4 * T * T * A  # scores, and the sums of values
MIXERS = alternatives(type_hints(tfm.Config)["mixer"])
OF_GRIDS = "spatial_reduction", "stripes", "windows", "neighbourhood"  # these read no tokens
PATTERNS = alternatives(type_hints(Softmax)["pattern"])


def in_buckets(chunk):
    """A block of queries sees itself, two blocks before it and one after it."""
    return 4 * T * 4 * chunk * A


def nystrom(o):
    m, products = o.landmarks, 4 * o.iterations
    means, at_landmarks = 2 * T * m * (A + KEYS), 2 * T * m * A
    inverse = N * products * 2 * m**3 + 2 * 2 * m * m * A  # with scores among landmarks, and the product with values
    return PROJECTIONS + means + 4 * at_landmarks + inverse + (2 * o.window - 1) * T * KEYS


def delta(o):
    m, c, chunks = 2 * o.nu * H, o.chunk, T // o.chunk
    of_pairs = 2 * c * c * (K * (m + H) + N * (m + H))
    of_weights = 2 * c * m * H * (K + N + K)
    inverse = K * 2 * math.ceil(math.log2(c)) * 2 * c**3
    return PROJECTIONS + 2 * T * D * K + 2 * K * m * H + chunks * (of_pairs + of_weights + inverse)


def sinkhorn(o):
    n, stored = T // o.block, -(-BASE.length // o.block)
    mixing = 2 * n * D * K * stored + 2 * 2 * n * n * o.block * KEYS
    return PROJECTIONS + T * D + mixing + 4 * T * 2 * o.block * A


def _parts(o):
    """The filters of each size of windows."""
    return np.array_split(np.arange(D), len(o.sizes))


def routing(o):
    members = 2 * T * N * o.clusters * (H + 1)
    return SHARED + 2 * T * A * o.clusters + members + in_buckets(o.chunk)


# The operations of a layer's mixer for one text; options -> a number.
FORMULAS = {
    "softmax": lambda o: PROJECTIONS + SCORES,
    "linformer": lambda o: PROJECTIONS + 2 * 2 * T * o.rank * KEYS + 4 * T * o.rank * A,
    "compressed": lambda o: PROJECTIONS + 2 * 2 * T * KEYS * H + 4 * T * (T // o.factor) * A,
    "nystrom": nystrom,
    "performer": lambda o: PROJECTIONS + 2 * T * o.features * (A + KEYS + KEYS + A + N),
    "linear": lambda o: PROJECTIONS + 2 * T * H * (KEYS + A + N),
    "aft": lambda o: PROJECTIONS + 2 * T * T * o.rank + 2 * 2 * T * T * KEYS,
    "delta": delta,
    "xca": lambda o: PROJECTIONS + 2 * 2 * T * A * H,
    "channel_groups": lambda o: 2 * T * 4 * D * D + 2 * 2 * T * D * (D // o.groups),
    "fnet": lambda o: 5 * T * D * math.log2(T * D),
    "synthesizer": lambda o: 2 * T * (2 * D * A + D * KEYS) + 2 * T * A * T + 2 * T * T * A,
    "gmlp": lambda o: 3 * 2 * T * D * (F // 2) + 2 * T * T * (F // 2),
    "lightconv": lambda o: 3 * 2 * T * D * A + 2 * o.window * T * A,
    "dynamicconv": lambda o: 3 * 2 * T * D * A + 2 * T * A * N * o.window + 2 * o.window * T * A,
    "textcnn": lambda o: 2 * T * D * sum(len(part) * w for part, w in zip(_parts(o), o.sizes, strict=True)),
    "gru": lambda o: 2 * T * (D * 3 * o.size + o.size * 3 * o.size + o.size * D),
    "lstm": lambda o: 2 * T * (D * 4 * D + D * 4 * D + D * D),
    "reformer": lambda o: SHARED + o.rounds * (2 * T * A * o.buckets // 2 + in_buckets(o.chunk)),
    "routing": routing,
    "sinkhorn": sinkhorn,
}


def operations(config, causal=False, count=needed_flops):
    """Of a forward pass over one text."""
    specs, forward = (tfm.causal_lm_specs, tfm.causal_lm) if causal else (tfm.encoder_specs, tfm.encoder)
    tokens = jax.ShapeDtypeStruct((1, T), jnp.int32)
    return count(lambda params, tokens: forward(params, config, tokens), tfm.abstract(specs(config)), tokens)


def expected(config, mixers, causal=False):
    """Those of the mixers of all layers, their feed-forward layers, and the vocabulary of a decoder."""
    return sum(mixers) + len(mixers) * 2 * T * 2 * D * F + (2 * T * D * config.pad_vocab_to if causal else 0)


def softmax(pattern, config, causal=False):
    """The same of softmax attention under a pattern: pairs are asked one by one."""
    allowed = table(rule_of(pattern, config, causal), T)
    visible, pairs = allowed.sum(), T * (T + 1) // 2 if causal else T * T
    blocks = T // pattern.block if pattern.name == "transient" else 0
    of_blocks = 2 * blocks * D * 2 * KEYS + (T + blocks) * D if blocks else 0
    count = len(pattern.global_places) if getattr(pattern, "projections", False) else 0
    of_first = 2 * D * (count * A + T * 2 * KEYS) + 4 * count * T * A if count else 0
    labels = pattern.labels if pattern.name == "etc" else 0  # scores of labels, and their columns of 2 T distances
    of_labels = 2 * T * A * (4 * labels + 4) + 2 * T * N * 2 * T * (2 * labels + 1) * visible / pairs if labels else 0
    return PROJECTIONS + SCORES * visible / pairs + 4 * T * blocks * A + of_blocks + of_first + of_labels


def row_of(tag):
    """The first row of a mixer."""
    return next(row for row in VARIANTS.values() if row.config.mixer.name == tag and row.config.input.grid is None)


@pytest.mark.parametrize("tag", [tag for tag in MIXERS if tag not in OF_GRIDS])
def test_operations_of_a_mixer(tag):
    row = row_of(tag)
    config, causal = row.config, not row.encoder
    options = [layer.mixer or config.mixer for layer in config.period * config.layers][: config.layers]
    mixers = [FORMULAS[o.name](o) if o.name != "softmax" else softmax(o.pattern, config, causal) for o in options]
    assert operations(config, causal) == pytest.approx(expected(config, mixers, causal), rel=1e-3, abs=6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tag", RULES)
def test_operations_of_a_pattern(tag, causal):
    row = next(row for row in VARIANTS.values() if row.values.get("mixer.pattern", "full") == tag)
    if not (row.decoder if causal else row.encoder):
        pytest.skip("there is no such model")
    config = tfm.override(BASE, {name: value for name, value in row.values.items() if name.startswith("mixer")})
    mixers = [softmax(config.mixer.pattern, config, causal)] * config.layers
    needed = operations(config, causal)
    assert needed == pytest.approx(expected(config, mixers, causal), rel=1e-3)
    assert needed <= operations(config, causal, flops)


def test_operations_of_windows_of_a_grid():
    """A patch is compared with those of its window; rows of a batch do it."""
    values = {"input": "patches", "input.size": 8, "input.patch": 2, "input.channels": 3, "input.cls": False}
    config = tfm.override(BASE, values | {"mixer.pattern": "windows", "mixer.pattern.window": 2})
    patches, pixels = 16, jax.ShapeDtypeStruct((1, 8, 8, 3), jnp.float32)
    layer = 2 * patches * (D * (A + 2 * KEYS + A) + 2 * D * F) + 4 * patches * 4 * A
    wanted = 2 * patches * 12 * D + config.layers * layer
    params = tfm.abstract(tfm.encoder_specs(config))
    assert needed_flops(lambda params, pixels: tfm.encoder(params, config, pixels), params, pixels) == wanted


def test_every_pattern_has_a_formula():
    assert {*RULES} == {*PATTERNS} - {*OF_GRIDS}
    assert {*FORMULAS} == {*MIXERS} - {*OF_GRIDS}


def test_sums_without_products_are_operations():
    """Without weights of places each value is multiplied by its weight, and both are added up."""
    row = VARIANTS["aft_simple"]
    assert operations(row.config) == expected(row.config, [PROJECTIONS + 3 * T * KEYS] * 3)


def test_additive_scores_are_operations():
    """As many as those of products."""
    row = VARIANTS["additive"]
    assert operations(row.config) == expected(row.config, [PROJECTIONS + SCORES] * 3)


def test_depthwise_convolutions_of_a_grid_are_operations():
    """Two for each place of the square and each channel."""
    kernel, x = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((3, 3, 5), (2, 12, 5)))
    assert flops(lambda kernel, x: depthwise(kernel, x, (3, 4)), kernel, x) == 2 * 3 * 3 * 2 * 12 * 5


def test_real_fourier_transforms_count_half():
    x = jax.ShapeDtypeStruct((3, 64), jnp.float32)
    assert flops(jnp.fft.rfft, x) == 3 * 2.5 * 64 * 6
    assert flops(jnp.fft.fft, x) == 3 * 5 * 64 * 6


@pytest.mark.parametrize("causal", [False, True])
def test_texts_packed_into_a_row_count_as_one(causal):
    """A pattern that begins anew in every text leaves as many pairs as in the longest."""
    config, tokens = tfm.override(BASE, {"mixer.pattern": "local", "mixer.pattern.block": 3}), jnp.zeros((2, T), int)
    ids = jnp.arange(T)[None] // 7 + jnp.zeros((2, 1), int)
    forward = tfm.decoder if causal else tfm.encoder

    def packed(params):
        return forward(params, config, tokens, tfm.segments(ids), positions=jnp.arange(T)[None] % 7 + 0 * ids)

    params = tfm.abstract((tfm.causal_lm_specs if causal else tfm.encoder_specs)(config))
    params = params.decoder if causal and hasattr(params, "decoder") else params
    plain = needed_flops(lambda params: forward(params, config, tokens), params)
    assert needed_flops(packed, params) == plain < flops(packed, params)


def test_pairs_of_a_long_text_are_about_those_of_all_queries():
    mask = tfm.causal() & (tfm.local_blocks(96) | tfm.summaries(96, 8))
    length = 20_000
    visible, pairs = visible_pairs(mask, length, length)
    place = np.arange(length)
    exact = (place % 96 + 1).sum() + (place // 96 * 8).sum()
    assert visible / pairs == pytest.approx(exact / (length * (length + 1) / 2), rel=0.01)
