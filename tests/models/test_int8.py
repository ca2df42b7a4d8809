"""Kernels in eight bits: products with them against products with the kernels that they stand for."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.int8 import Int8, quantize
from tfm.quantization import weight_bytes

CONFIG = tfm.Config(layers=3, heads=4, kv_heads=2, width=16, ffn=24, vocab=56, length=12, pad_vocab_to=8, dropout=0.0)
RNG = np.random.default_rng(0)


def test_every_value_is_the_nearest():
    kernel = RNG.standard_normal((6, 5)).astype(np.float32)
    kernel[:, 3] = 0
    leaf = quantize(jnp.asarray(kernel), (0,))
    for column in range(5):
        step = np.abs(kernel[:, column]).max() / 127
        expected = np.round(kernel[:, column] / step) if step else np.zeros(6)
        np.testing.assert_array_equal(leaf.values[column], expected)
        assert leaf.scale[column, 0] == pytest.approx(step)
        assert (np.abs(leaf.kernel[:, column] - kernel[:, column]) <= step / 2 + 1e-7).all()
    assert (leaf.values.dtype, leaf.scale.dtype, leaf.scale.shape) == (jnp.int8, jnp.float32, (5, 1))


PRODUCTS = {
    "outputs": ("BTD,DKGH->BTKGH", (2, 3, 8), (8, 2, 3, 4), (0,)),
    "a single row": ("BTD,DKGH->BTKGH", (1, 1, 8), (8, 2, 3, 4), (0,)),
    "several inputs": ("BTKGH,KGHD->BTD", (2, 3, 2, 3, 4), (2, 3, 4, 8), (0, 1, 2)),
    "a row of several inputs": ("BTKGH,KGHD->BTD", (1, 1, 2, 3, 4), (2, 3, 4, 8), (0, 1, 2)),
    "a table behind the layers": ("BTD,VD->BTV", (2, 3, 8), (9, 8), (1,)),
    "heads of both": ("BTKH,KHD->BTKD", (2, 3, 2, 4), (2, 4, 5), (1,)),
    "inputs": ("BTV,VD->BTD", (2, 3, 9), (9, 8), (1,)),
    "mixed": ("BTKH,KHD->BTD", (2, 3, 2, 4), (2, 4, 5), (1,)),
}
FIRST = ("inputs", "heads of both", "a row of several inputs")  # what the plain test command multiplies
PLAIN = ("inputs", "mixed")  # where no scale is left for the rows of x


def rows_of_eight_bits(equation, x):
    """x [...] as the nearest of 255 values, with a scale for each row, in numpy; what is summed has no scale."""
    left, output = equation.split(",")[0], equation.split("->")[1]
    summed = tuple(axis for axis, letter in enumerate(left) if letter not in output)
    step = np.abs(x).max(summed, keepdims=True) / 127
    return np.round(x / np.where(step > 0, step, 1)) * step


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, marks=[] if dtype == "float32" and case in FIRST else [pytest.mark.slow])
        for case in PRODUCTS
        for dtype in ("float32", "bfloat16")
    ],
)
def test_product(case, dtype):
    equation, x_shape, shape, summed = PRODUCTS[case]
    x, kernel = jnp.asarray(RNG.standard_normal(x_shape), dtype), jax.device_put(RNG.standard_normal(shape))
    leaf = quantize(kernel, summed)
    actual = tfm.einsum(equation, x, leaf)
    exact = np.asarray(x, np.float64)
    rounded = exact if case in PLAIN else rows_of_eight_bits(equation, exact)
    expected = np.einsum(equation, rounded, np.asarray(leaf.kernel, np.float64))
    assert actual.dtype == dtype
    tolerance = 1e-5 if dtype == "float32" else 0.05
    np.testing.assert_allclose(np.asarray(actual, np.float64), expected, rtol=tolerance, atol=tolerance)
    without = np.einsum(equation, exact, np.asarray(kernel, np.float64))
    assert np.abs(actual - without).max() < 0.03 * np.abs(without).max()


@pytest.mark.slow
def test_rows_of_zeros_and_rows_that_are_not_finite():
    leaf = quantize(jax.device_put(RNG.standard_normal((4, 3))), (0,))
    x = jnp.array([[[0.0] * 4, [np.nan, 1, 1, 1], [np.inf, 1, 1, 1], [1.0] * 4]])
    y = tfm.einsum("BTD,DF->BTF", x, leaf)[0]
    assert (y[0] == 0).all()
    assert np.isfinite(y[3]).all()
    assert np.isnan(y[1:3]).all()


@pytest.mark.slow
def test_a_model_computes_with_the_kernels_that_it_has():
    specs = tfm.causal_lm_specs(CONFIG)
    params = random_params(specs)
    small = tfm.quantize_weights(specs, params)
    is_int8 = lambda node: isinstance(node, Int8)
    leaves = jax.tree.leaves(small, is_leaf=is_int8)
    assert sum(map(is_int8, leaves)) == 7, "query, key, value, output, up and down of all layers, and the table"
    plain = jax.tree.map(lambda node: node.kernel if is_int8(node) else node, small, is_leaf=is_int8)
    tokens = jnp.arange(24).reshape(2, 12)
    logits = tfm.causal_lm(small, CONFIG, tokens)
    np.testing.assert_allclose(logits, tfm.causal_lm(plain, CONFIG, tokens), atol=0.03 * np.abs(logits).max())
    exact = tfm.causal_lm(params, CONFIG, tokens)
    assert 0 < np.abs(logits - exact)[..., :56].max() < 0.1 * np.abs(exact[..., :56]).max()
    assert weight_bytes(small) < 0.5 * weight_bytes(params)
    targets, weights = tokens[:, 1:], jnp.ones((2, 11))
    x = jax.device_put(np.float32(RNG.normal(size=(2, 11, 16))))
    losses = [tfm.vocabulary_loss(CONFIG, tree.output, x, targets, weights)[0] for tree in (small, plain)]
    np.testing.assert_allclose(*losses, rtol=1e-3)
    actual, expected = (tfm.generate(tree, CONFIG, [[1, 2], [3]], 4) for tree in (small, plain))
    np.testing.assert_allclose(actual.logprobs, expected.logprobs, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
def test_on_eight_devices():
    config = dataclasses.replace(CONFIG, scan=False)
    specs = tfm.causal_lm_specs(config)
    params, tokens = random_params(specs), jnp.arange(24).reshape(2, 12)
    expected = tfm.causal_lm(tfm.quantize_weights(specs, params), config, tokens)
    mesh = tfm.make_mesh(fsdp=2, tensor=2)
    with jax.set_mesh(mesh):
        on_mesh = jax.device_put(params, tfm.shardings(specs, mesh))
        small = jax.jit(lambda params: tfm.quantize_weights(specs, params))(on_mesh)
        actual = jax.jit(tfm.causal_lm, static_argnums=1)(small, config, tokens)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_updates_must_be_merged_first():
    specs = tfm.low_rank_specs(tfm.causal_lm_specs(CONFIG), ["query"], 2, 1.0)
    params = random_params(specs)
    with pytest.raises(ValueError, match="merge_low_rank"):
        tfm.quantize_weights(tfm.causal_lm_specs(CONFIG), params)
