import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.usefixtures("strict")

POSITIONS = jnp.array([[0, 8, 3], [2, 2, 1]])


def position_and_config(name):
    config = tfm.override(tfm.Config(heads=1, width=6, length=9), {"position": name})
    return tfm.position_of(config.position), config


def test_learned_positions_are_rows_of_a_table():
    table = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
    position, config = position_and_config("learned")
    rows = position.embed(tfm.LayerCall(config.position, config, jnp.asarray(table)), jnp.zeros((2, 3, 6)), POSITIONS)
    np.testing.assert_array_equal(rows, table[np.asarray(POSITIONS)])


@pytest.mark.parametrize("name", ["learned", "sinusoidal", "rotary", "alibi", "none"])
def test_only_learned_positions_have_a_table(name):
    position, config = position_and_config(name)
    specs = position.embed_specs(config.position, config)
    assert (specs is None) == (name != "learned")
    if specs is not None:
        assert (specs.axes, specs.shape, specs.decay) == ("PD", (9, 6), True)
    assert position.shared_specs(config.position, config) is None
    assert position.specs(config.position, config) is None


@pytest.mark.parametrize("name", ["rotary", "alibi", "t5", "none"])
def test_positions_of_scores_add_nothing_to_the_embeddings(name):
    position, config = position_and_config(name)
    x = jnp.ones((2, 3, 6))
    assert position.embed(tfm.LayerCall(config.position, config, None), x, POSITIONS) is x


def test_the_table_starts_as_sines_with_the_variance_of_weights():
    position, config = position_and_config("learned")
    config = tfm.override(config, {"length": 400, "width": 64, "init_std": 0.05})
    spec = position.embed_specs(config.position, config)
    table = np.asarray(tfm.init(spec, jax.random.key(0)))
    np.testing.assert_allclose(table, 0.05 * math.sqrt(2) * tfm.sinusoidal(jnp.arange(400)[None], 64)[0], rtol=1e-6)
    assert math.isclose(np.sqrt((table**2).mean()), 0.05, rel_tol=1e-5)
