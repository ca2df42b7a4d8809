"""Score functions; that they are their definitions is in the contracts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from oracles import scores as oracle

import tfm
from tfm.attention import scores
from tfm.attention.cross import cross_attention, cross_specs
from tfm.attention.kernels import blocks
from tfm.attention.project import swap_heads
from tfm.interfaces import Memory

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]

CONFIG = tfm.Config(layers=1, heads=4, kv_heads=2, width=16, vocab=60, dropout=0.0)
ADDITIVE = {"mixer.score": "additive"}


def random(*shape, seed=0):
    return jax.device_put(np.float32(np.random.default_rng(seed).normal(size=shape)))


def test_blocks_of_queries_are_all_queries_at_once(monkeypatch):
    """Values and gradients, with a mask, and a last block that is not full."""
    operands = random(2, 7, 2, 2, 4), random(2, 7, 2, 4, seed=1), random(2, 7, 2, 4, seed=2)
    vector, mask = random(2, 2, 4, seed=3), tfm.causal() & tfm.padding(jnp.arange(7)[None] < jnp.array([[7], [5]]))

    def loss(operands, vector):
        compare = lambda q, k: scores.additive_scores(q, k, vector)
        y = blocks.attend_in_blocks(*operands, mask, score_fn=compare)
        return jnp.square(y).sum(), y

    def run():
        return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(operands, vector)

    at_once = run()
    monkeypatch.setattr(blocks, "BLOCK", 2 * 4 * 4 * 7 * 3)  # three queries
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), run(), at_once)


def test_no_array_holds_the_sums_of_all_pairs():
    q, k, vector = (
        jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1, 512, 1, 2, 32), (1, 512, 1, 32), (1, 2, 32))
    )

    def loss(q, k, vector):
        score_fn = lambda q, k: scores.additive_scores(q, k, vector)
        return blocks.attend_in_blocks(q, k, k, score_fn=score_fn).sum()

    program = jax.make_jaxpr(jax.grad(loss, (0, 1, 2)))(q, k, vector)
    sizes = [var.aval.size for eqn in equations(program.jaxpr) for var in eqn.outvars]
    assert max(sizes) <= blocks.BLOCK < 512 * 512 * 64


def equations(jaxpr):
    """All equations of a program, those of its loops too."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jaxprs_in_params(eqn.params):
            yield from equations(inner)


def test_multiplicative_scores_start_as_scaled_products():
    config = tfm.override(CONFIG, {"mixer.score": "multiplicative"})
    mixer = tfm.mixer_of(config.mixer)
    specs = mixer.specs(config.mixer, config)
    matrix = tfm.init(specs, jax.random.key(0)).score
    assert (specs.score.axes, matrix.shape) == ("KGHh", (2, 2, 4, 4))
    q = random(1, 3, 2, 2, 4)
    np.testing.assert_allclose(scores.score_queries("multiplicative", matrix, q), q, rtol=1e-6)
    np.testing.assert_allclose(scores.score_queries("dot", None, q), 2 * q, rtol=1e-6)


def test_additive_scores_refuse_kernels_that_multiply():
    with pytest.raises(ValueError, match=r"kernel=chunked multiplies queries and keys.*leave kernel at auto"):
        tfm.override(CONFIG, ADDITIVE | {"kernel": "chunked"})


def test_additive_scores_refuse_positions_that_change_queries_and_keys():
    config = tfm.override(CONFIG, ADDITIVE | {"position": "rotary"})
    params = tfm.abstract(tfm.encoder_specs(config))
    with pytest.raises(tfm.VariantError, match=r"softmax with score=additive.*try position=learned"):
        jax.eval_shape(lambda params: tfm.encoder(params, config, jnp.zeros((1, 4), jnp.int32)), params)


def test_halves_need_an_even_width():
    with pytest.raises(ValueError, match=r"width=15 must be even for mixer.split_states=true"):
        tfm.override(CONFIG, {"width": 15, "heads": 1, "kv_heads": 1, "mixer.split_states": True})


def test_recorded_weights_are_those_of_additive_scores():
    config = tfm.override(CONFIG, ADDITIVE)
    mixer = tfm.mixer_of(config.mixer)
    params = jax.tree.map(lambda spec: random(*spec.shape), mixer.specs(config.mixer, config))

    @functools.partial(jax.jit, static_argnums=0)
    def forward(record, x):
        context = tfm.AttentionContext(jnp.arange(4)[None], record=record)
        call = tfm.LayerCall(
            config.mixer, config, params, mixer.prepare(tfm.LayerCall(config.mixer, config), context), None
        )
        return mixer.forward(call, x, lambda q, k, projections: (q, k, None), None)

    x = random(1, 4, 16)
    (y, output), (plain, nothing) = forward(True, x), forward(False, x)
    np.testing.assert_allclose(y, plain, rtol=1e-5, atol=1e-5)
    assert (output.weights.shape, nothing.weights) == ((1, 2, 2, 4, 4), None)
    np.testing.assert_allclose(output.weights.sum(-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("name", ["dot", "multiplicative", "additive"])
def test_a_decoder_compares_its_source_by_the_score(name):
    """Values and the slope of cross-attention against a loop over pairs; padding of a source is not seen."""
    config = tfm.override(CONFIG, {"mixer.score": name})
    params = jax.tree.map(lambda spec: random(*spec.shape), cross_specs(config.mixer, config))
    x, source, direction, weights = (random(2, size, 16, seed=size) for size in (5, 7, 5, 5))
    valid = jnp.arange(7)[None] < jnp.array([[7], [4]])

    def forward(x, record=False):
        keys, values = map(swap_heads, tfm.keys_values(params, config, source))
        context = tfm.AttentionContext(jnp.arange(5)[None], record=record, memory=Memory(None, valid))
        return cross_attention(tfm.LayerCall(config.mixer, config, params, (keys, values)), x, context)

    def by_loop(x):
        rows = [slice(0, 1), slice(1, 2)]
        parts = [
            getattr(oracle, name)(params, x[row], source[row, :size]) for row, size in zip(rows, (7, 4), strict=True)
        ]
        return np.concatenate(parts)

    wide, direction = (np.asarray(rows, np.float64) for rows in (x, direction))
    np.testing.assert_allclose(jax.jit(forward)(x)[0], by_loop(wide), rtol=1e-5, atol=1e-4)
    slope = jax.jit(jax.grad(lambda x: (forward(x)[0] * weights).sum()))(x)
    expected = (by_loop(wide + 1e-6 * direction) - by_loop(wide - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose((slope * direction).sum(), (expected * weights).sum(), rtol=1e-3)
    y, recorded = forward(x, record=True)
    np.testing.assert_allclose(y, by_loop(wide), rtol=1e-5, atol=1e-4)
    assert (recorded[1, ..., 4:] == 0).all()
