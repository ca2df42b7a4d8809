"""The biases of BEiT: offsets of rows and columns of patches, and what [CLS] has of its own."""

import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.usefixtures("strict")

IMAGES = {"input": "patches", "input.size": 4, "input.image_width": 6, "input.patch": 2, "position": "beit"}
CONFIG = tfm.override(tfm.Config(heads=4, kv_heads=2, width=8), IMAGES)


def bias_of(config, layer_table, shared_table):
    """What is added to the scores of all pairs: [K,G,T,T]."""
    position, length = tfm.position_of(config.position), config.input.length
    context = tfm.AttentionContext(jnp.arange(length)[None])
    prepared = position.prepare(tfm.LayerCall(config.position, config, shared_table), context)
    call = tfm.LayerCall(config.position, config, layer_table, prepared, None)
    q, k = jnp.ones((1, length, 2, 2, 2)), jnp.ones((1, length, 2, 2))
    positioned_q, positioned_k, bias = position.score(call, q, k, None)
    assert positioned_q is q
    assert positioned_k is k
    return bias if bias is None else np.asarray(bias.dense(length)[0])


@pytest.mark.parametrize("cls", [True, False])
@pytest.mark.parametrize(
    ("by_layer", "shared"),
    [
        pytest.param(True, False, marks=pytest.mark.slow),
        pytest.param(False, True, marks=pytest.mark.slow),
        (True, True),
    ],
)
def test_biases_are_those_of_a_loop(fill, cls, by_layer, shared):
    """Row by row of the table: offsets from the last place to the first and so on, then those of [CLS]."""
    values = {"input.cls": cls, "position.by_layer": by_layer, "position.shared": shared}
    config = tfm.override(CONFIG, values)
    position = tfm.position_of(config.position)
    layer_table = fill(position.specs(config.position, config))
    shared_table = fill(position.shared_specs(config.position, config), 1)
    tables = [np.asarray(table) for table in (layer_table, shared_table) if table is not None]
    assert len(tables) == by_layer + shared
    offsets = [(rows, columns) for rows in (-1, 0, 1) for columns in (-2, -1, 0, 1, 2)]
    assert all(len(table) == len(offsets) + 3 * cls for table in tables)
    places = [None] * cls + [(row, column) for row in range(2) for column in range(3)]
    bias = bias_of(config, layer_table, shared_table)
    for i, query in enumerate(places):
        for j, key in enumerate(places):
            if query is None or key is None:
                row = {(False, True): -3, (True, False): -2, (False, False): -1}[query is not None, key is not None]
            else:
                row = offsets.index((query[0] - key[0], query[1] - key[1]))
            np.testing.assert_allclose(bias[..., i, j], sum(table[row] for table in tables), rtol=1e-6)


def test_absolute_positions_alone(fill):
    config = tfm.override(CONFIG, {"position.by_layer": False, "position.absolute": True})
    assert bias_of(config, None, None) is None
    tables, pixels = fill(tfm.embed_specs(config)), jnp.ones((1, 4, 6, 3))
    assert tables.positions.shape == (7, 8)
    without = tfm.embed(tables.replace(positions=None), config, pixels)
    np.testing.assert_allclose(
        tfm.embed(tables, config, pixels), without + tables.positions[None], rtol=1e-5, atol=1e-5
    )


def test_texts_have_no_rows_and_columns():
    with pytest.raises(ValueError, match="position=beit counts rows and columns, which input=tokens does not have"):
        tfm.override(tfm.Config(), {"position": "beit"})
