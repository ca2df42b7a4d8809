"""Losses over the vocabulary: against loops in numpy, in parts, on meshes, and their gradients."""

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import tfm
from tfm.losses import vocabulary
from train.tasks.lm.task import LM
from train.tasks.mlm.task import MLM
from train.tasks.translate.task import TRANSLATE

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.Config(vocab=50, pad_vocab_to=8, width=16, heads=2)  # the table has 56 rows
RNG = np.random.default_rng(0)
X, TABLE, BIAS = (jax.device_put(np.float32(RNG.normal(size=shape))) for shape in ((8, 12, 16), (56, 16), (56,)))
TARGETS, WEIGHTS = jax.device_put(RNG.integers(0, 50, (8, 12))), jax.device_put(np.float32(RNG.random((8, 12))))
SMOOTHING = jax.device_put(np.float32(RNG.random((8, 12)) * 0.3))


def by_hand(smoothing):
    """Cross entropy with the distribution that smoothing makes of a target, in loops and float64 (Szegedy et al. 2016,
    section 7)."""
    losses = np.zeros((8, 12))
    x, table, bias = (np.asarray(array, np.float64) for array in (X, TABLE, BIAS))
    for b, t in np.ndindex(8, 12):
        logits = table[:50] @ x[b, t] + bias[:50]
        logprobs = logits - np.log(np.exp(logits).sum())
        wanted = np.full(50, smoothing[b, t] / 50)
        wanted[TARGETS[b, t]] += 1 - smoothing[b, t]
        losses[b, t] = -(wanted * logprobs).sum()
    return losses


@pytest.mark.parametrize("smoothing", [None, SMOOTHING], ids=["plain", "smoothed"])
def test_smoothing_is_a_distribution(smoothing):
    logits = tfm.unembed(CONFIG, TABLE, X) + BIAS[None, None]
    losses = (
        tfm.cross_entropy(logits, TARGETS) if smoothing is None else tfm.cross_entropy(logits, TARGETS, smoothing, 50)
    )
    np.testing.assert_allclose(
        losses, by_hand(np.zeros((8, 12)) if smoothing is None else np.asarray(smoothing)), rtol=1e-5
    )


def at_once(x, table, bias, smoothing, weights=WEIGHTS):
    """The same from all logits, through autodiff."""
    logits = tfm.unembed(CONFIG, table, x) + bias[None, None]
    losses = tfm.cross_entropy(logits, TARGETS, smoothing, 50)
    return 1.5 * (losses * weights).sum(), (losses, logits.argmax(-1) == TARGETS)


def in_parts(x, table, bias, smoothing, weights=WEIGHTS):
    total, losses, right = tfm.vocabulary_loss(CONFIG, table, x, TARGETS, weights, smoothing, bias)
    return 1.5 * total, (losses, right)


def learned(function, smoothing, *inputs):
    """Value, and gradients for states, table and bias, and without a mesh for the weights."""
    smoothed = lambda x, table, bias, *weights: function(x, table, bias, smoothing, *weights)
    return jax.jit(jax.value_and_grad(smoothed, argnums=range(len(inputs)), has_aux=True))(*inputs)


def assert_close(actual, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), actual, expected)


def in_parts_of(monkeypatch, tokens):
    """Lets so many tokens meet the vocabulary at once."""
    monkeypatch.setattr(vocabulary, "tokens_at_a_time", lambda vocab, width, itemsize: tokens)


@pytest.mark.parametrize(
    "tokens", [1000, 7, pytest.param(1, marks=pytest.mark.slow)], ids=["one part", "parts of 7 tokens", "of one token"]
)
@pytest.mark.parametrize(
    "smoothing", [0.0, pytest.param(0.2, marks=pytest.mark.slow), SMOOTHING], ids=["plain", "a number", "smoothed"]
)
def test_parts_change_nothing(monkeypatch, tokens, smoothing):
    in_parts_of(monkeypatch, tokens)
    expected = learned(
        at_once, jnp.full((8, 12), smoothing) if isinstance(smoothing, float) else smoothing, X, TABLE, BIAS, WEIGHTS
    )
    assert_close(learned(in_parts, smoothing, X, TABLE, BIAS, WEIGHTS), expected)
    assert_close(in_parts(X, TABLE, BIAS, smoothing), expected[0])


@pytest.mark.parametrize(
    "sizes",
    [*(pytest.param(sizes, marks=pytest.mark.slow) for sizes in [(8, 1, 1), (1, 8, 1), (1, 1, 8)]), (2, 2, 2)],
    ids=str,
)
def test_meshes_change_nothing(monkeypatch, sizes):
    in_parts_of(monkeypatch, 1)
    expected = learned(at_once, SMOOTHING, X, TABLE, BIAS)
    mesh = tfm.make_mesh(*sizes)
    places = PartitionSpec(("data", "fsdp")), PartitionSpec("tensor", "fsdp"), PartitionSpec("tensor")
    with jax.set_mesh(mesh):
        inputs = [
            jax.device_put(array, NamedSharding(mesh, place))
            for array, place in zip((X, TABLE, BIAS), places, strict=True)
        ]
        actual = learned(in_parts, SMOOTHING, *inputs)
    assert_close(jax.tree.map(np.asarray, actual), expected)
    for gradient, array in zip(actual[1], inputs, strict=True):
        assert gradient.sharding.is_equivalent_to(array.sharding, gradient.ndim)


def test_logits_are_never_there_at_once(monkeypatch):
    in_parts_of(monkeypatch, 8)
    program = jax.make_jaxpr(jax.grad(lambda x: in_parts(x, TABLE, BIAS, 0.1)[0]))(X)
    sizes = [int(np.prod(value.aval.shape)) for value in _values(program.jaxpr) if 56 in value.aval.shape]
    assert max(sizes) < 8 * 12 * 56
    assert max(sizes) >= 56 * 8


def on_a_gpu(monkeypatch):
    """Lets the loss be computed as for a GPU, here."""
    monkeypatch.setattr(vocabulary, "platform", lambda: "gpu")


@pytest.mark.parametrize(
    ("tokens", "at_a_time", "size"), [(1000, 1000, 1000), (1001, 1000, 512), (2048, 700, 768), (12, 8, 128)]
)
def test_several_chunks_of_an_accelerator_are_whole_tiles(monkeypatch, tokens, at_a_time, size):
    in_parts_of(monkeypatch, at_a_time)
    assert vocabulary.chunk_size(tokens, 100, 8, 2) == -(-tokens // -(-tokens // at_a_time))
    on_a_gpu(monkeypatch)
    assert vocabulary.chunk_size(tokens, 100, 8, 2) == size


@pytest.mark.parametrize("tokens", [1000, 7])
def test_a_gpu_changes_nothing_in_float32(monkeypatch, tokens):
    in_parts_of(monkeypatch, tokens)
    on_a_gpu(monkeypatch)
    expected = learned(at_once, SMOOTHING, X, TABLE, BIAS, WEIGHTS)
    assert_close(learned(in_parts, SMOOTHING, X, TABLE, BIAS, WEIGHTS), expected)


@pytest.mark.slow
def test_a_gpu_stores_halves_of_short_factors(monkeypatch):
    """They round logits by 2^-11, also those of the largest state, and the table less than bfloat16 does; evaluation
    rounds nothing more."""
    x = (3 * X).astype(jnp.bfloat16)
    table = TABLE.astype(jnp.bfloat16).astype(jnp.float32)
    loss = lambda x: in_parts(x, table, BIAS, 0.1)[0]
    expected, slope = jax.jit(jax.value_and_grad(loss))(x)
    on_a_gpu(monkeypatch)
    learned_loss = jax.jit(jax.value_and_grad(loss))
    actual, rounded_slope = learned_loss(x)
    assert 0 < abs(actual - expected) < 2e-3 * abs(expected)
    np.testing.assert_allclose(rounded_slope.astype(float), slope.astype(float), atol=0.01 * np.abs(slope).max())
    np.testing.assert_allclose(loss(x), expected, rtol=1e-6)
    exact, plain = (jax.jit(lambda x: in_parts(x, TABLE, BIAS, 0.1)[0])(x.astype(dtype)) for dtype in ("f4", x.dtype))
    half = jax.jit(jax.value_and_grad(lambda x: in_parts(x, TABLE, BIAS, 0.1)[0]))(x)[0]
    assert abs(half - exact) < abs(plain - exact) / 2
    assert np.isfinite(learned_loss(1e6 * x)[1].astype(float)).all()
    assert not np.isfinite(learned_loss(3e38 * x)[0])


PAIRS = dict.fromkeys(("segments", "positions", "target", "target_segments", "target_positions"), 12)
PAIRS |= {"smoothing": 0}
TASKS = {
    "mlm": (MLM, tfm.masked_lm_specs, {"segments": 12, "positions": 12, "where": 5, "words": 5}, 5),
    "lm": (LM, tfm.causal_lm_specs, {"segments": 12, "positions": 12, "bytes": 0}, 12),
    "translate": (TRANSLATE, tfm.seq2seq_specs, PAIRS, 12),
}


@pytest.mark.parametrize("task", TASKS)
def test_no_loss_of_a_task_has_all_logits(monkeypatch, task):
    """Nor has its gradient: no array of the traced program with the vocabulary's axis is as large as all logits."""
    in_parts_of(monkeypatch, 8)
    task, specs, fields, targets = TASKS[task]
    floats = ("weights", "words", "bytes", "smoothing")
    fields = fields | {"tokens": 12, "targets": targets, "weights": targets}
    shape = lambda name, size: jax.ShapeDtypeStruct(
        (8, size) if size else (8,), jnp.float32 if name in floats else jnp.int32
    )
    batch = {name: shape(name, size) for name, size in fields.items()}
    loss = lambda params, batch: task.loss(params, CONFIG, batch, None)["loss"]
    program = jax.make_jaxpr(jax.value_and_grad(loss))(tfm.abstract(specs(CONFIG)), batch)
    sizes = [int(np.prod(value.aval.shape)) for value in _values(program.jaxpr) if 56 in value.aval.shape]
    assert 56 * 8 <= max(sizes) < 8 * targets * 56


def _values(jaxpr):
    for equation in jaxpr.eqns:
        yield from equation.outvars
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from _values(inner)


def test_a_tie_is_no_hit():
    """With all logits equal, no token is more probable than the others."""
    _, losses, right = tfm.vocabulary_loss(CONFIG, jnp.zeros_like(TABLE), X, TARGETS, WEIGHTS)
    np.testing.assert_allclose(losses, np.log(50), rtol=1e-6)
    assert not right.any()


def test_bfloat16_states():
    exact = learned(in_parts, SMOOTHING, X, TABLE, BIAS)
    rough = learned(in_parts, SMOOTHING, X.astype(jnp.bfloat16), TABLE, BIAS)
    assert rough[0][0].dtype == rough[1][1].dtype == jnp.float32
    assert rough[1][0].dtype == jnp.bfloat16
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a.astype(jnp.float32), b, rtol=0.05, atol=0.05),
        (rough[0][0], rough[1]),
        (exact[0][0], exact[1]),
    )
