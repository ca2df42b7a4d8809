"""Where the vectors of absolute positions go."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.norms import norm

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]

CONFIG = tfm.Config(layers=1, heads=2, kv_heads=1, width=8, ffn=8, vocab=20, pad_vocab_to=4, length=6, dropout=0.0)
TOKENS, POSITIONS = jnp.array([[3, 1, 4, 1]]), jnp.array([[0, 1, 0, 5]])


def embedded(fill, name, place):
    """The config, the embeddings without a norm, and their parameters."""
    config = tfm.override(
        CONFIG,
        {"position": name, "position.place": place, "input.norm": False, "input.token_types": None},
    )
    tables = fill(tfm.embed_specs(config))
    return config, np.asarray(tfm.embed(tables, config, TOKENS, POSITIONS)), tables


def rows_of(name, table):
    """The vectors of the positions."""
    rows = tfm.sinusoidal(POSITIONS, 8) if name == "sinusoidal" else table[POSITIONS]
    return np.asarray(rows, np.float64)


@pytest.mark.parametrize("name", ["learned", "sinusoidal"])
def test_concatenated_positions_are_a_product_with_both(fill, name):
    _, x, tables = embedded(fill, name, "concatenated")
    both = np.concatenate([np.asarray(tables.tokens)[TOKENS], rows_of(name, tables.positions.table)], axis=-1)
    np.testing.assert_allclose(x, both @ np.asarray(tables.positions.kernel, np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["learned", "sinusoidal"])
def test_queries_and_keys_of_tokens_and_positions(fill, name):
    """Equal to projections of x + p, but for values; the embeddings know no positions."""
    config, x, tables = embedded(fill, name, "queries_keys")
    assert tables.positions is None
    np.testing.assert_array_equal(x, tables.tokens[TOKENS])
    options, position = config.position, tfm.position_of(config.position)
    layer, shared = fill(tfm.attention_specs(config)), fill(position.shared_specs(options, config), seed=1)
    prepared = position.prepare(tfm.LayerCall(options, config, shared), tfm.AttentionContext(POSITIONS))
    call = tfm.LayerCall(options, config, None, prepared, None)
    states = jnp.asarray(x)
    q, k, bias = position.score(
        call, tfm.queries(layer, config, states), tfm.keys_values(layer, config, states)[0], layer
    )
    summed = jnp.asarray(x + rows_of(name, shared), jnp.float32)
    assert bias is None
    np.testing.assert_allclose(q, tfm.queries(layer, config, summed), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(k, tfm.keys_values(layer, config, summed)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["learned", "sinusoidal"])
def test_every_layer_reads_positions(fill, name):
    """Each of two layers attends over x + p, and the stream beside it has no positions."""
    config, x, tables = embedded(fill, name, "every_layer")
    assert tables.positions is None
    np.testing.assert_array_equal(x, tables.tokens[TOKENS])
    config = tfm.override(config, {"layers": 2, "residual": "pre"})
    model = fill(tfm.encoder_specs(config), seed=2)
    waves = jnp.asarray(rows_of(name, model.positions[0]), jnp.float32)
    expected = tfm.embed(model.embed, config, TOKENS, POSITIONS)
    for block in (jax.tree.map(lambda leaf, index=index: leaf[index], model.layers.period[0]) for index in range(2)):
        read = norm(config, block.residual.mixer, expected) + waves
        expected = expected + tfm.multi_head_attention(block.mixer, config, read)
        read = norm(config, block.residual.feed_forward, expected)
        expected = expected + tfm.feed_forward(block.feed_forward, config, read)
    states = tfm.encoder(model, config, TOKENS, positions=POSITIONS)
    np.testing.assert_allclose(states, norm(config, model.norm, expected), rtol=2e-4, atol=2e-4)


def test_what_does_not_fit_is_refused():
    place = {"position": "learned", "position.place": "queries_keys"}
    with pytest.raises(ValueError, match=r"position\.place=queries_keys adds vectors of the model's width"):
        tfm.override(CONFIG, place | {"input.width": 4})
    with pytest.raises(ValueError, match=r"position\.place=queries_keys adds to what mixer\.qk_norm=true has"):
        tfm.override(CONFIG, place | {"mixer.qk_norm": True})
    with pytest.raises(ValueError, match="place=between is unknown"):
        tfm.override(CONFIG, {"position": "learned", "position.place": "between"})
    with pytest.raises(ValueError, match=r"method=5 must be at most 4: the paper has four methods"):
        tfm.override(CONFIG, {"position": "huang", "position.method": 5})
    with pytest.raises(ValueError, match=r"max_distance=0 must be at least 1"):
        tfm.override(CONFIG, {"position": "shaw", "position.max_distance": 0})
