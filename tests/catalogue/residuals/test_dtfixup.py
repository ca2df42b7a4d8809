"""Initial values of DT-Fixup, before and after it has seen a batch, against the paper's formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import residuals as oracle
from oracles.residuals import start

import tfm

pytestmark = pytest.mark.slow

CONFIG = tfm.override(
    tfm.Config(layers=3, heads=2, width=32, vocab=40, pad_vocab_to=1, length=8, dropout=0.0),
    {"residual": "dtfixup", "period": 2},
)
TOKENS = jnp.array([[1, 2, 3, 4], [5, 6, 7, 8]])
BRANCHES = (".value.kernel", ".output.kernel", ".up.kernel", ".down.kernel")


def test_branches_are_divided_by_the_size_of_the_largest_embedding():
    params = start(tfm.causal_lm_specs(CONFIG))
    np.testing.assert_allclose(
        np.std(params.decoder.layers.tail[0].feed_forward.up.kernel), (2 / 160) ** 0.5, rtol=0.05
    )
    calibrated = jax.jit(tfm.calibrate, static_argnums=1)(params, CONFIG, TOKENS)
    embedded = oracle.embedded(params.decoder, CONFIG, TOKENS)
    largest = max(np.linalg.norm(row) for text in embedded for row in text)
    factor = (3 * (4 * largest**2 + 2 * largest + 2)) ** -0.5
    before, after = (jax.tree_util.tree_leaves_with_path(tree) for tree in (params, calibrated))
    scaled = set()
    for (path, leaf), (_, new) in zip(before, after, strict=True):
        name = jax.tree_util.keystr(path)
        is_branch = name.endswith(BRANCHES)
        np.testing.assert_allclose(new, leaf * factor if is_branch else leaf, rtol=1e-5, err_msg=name)
        scaled |= {name} if is_branch else set()
    assert len(scaled) == 3 * len(BRANCHES)  # two kinds of the period, and the tail
