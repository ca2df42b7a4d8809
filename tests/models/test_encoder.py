import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers.blocks import context_of
from random_params import random_params

import tfm

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.Config(
    layers=2, heads=4, kv_heads=2, width=16, ffn=24, vocab=60, pad_vocab_to=64, length=12, dropout=0.0, init_std=0.3
)
# The first layer reads the embeddings as they are; every second one sees all, those between what is near.
MODERNBERT = {
    "layers": 6,
    "residual": "pre",
    "norm": "layer_no_bias",
    "activation": "geglu",
    "bias": False,
    "position": "rotary",
    "position.base": 700.0,
    "prefix": 1,
    "prefix.0.residual": "pre",
    "prefix.0.residual.mixer_norm": False,
    "period": 2,
    "period.0.mixer": "softmax",
    "period.0.mixer.pattern": "sliding",
    "period.0.mixer.pattern.window": 3,
    "period.0.position": "rotary",
    "period.0.position.base": 20.0,
}
TOKENS = jnp.array([[5, 59, 0, 7, 7, 31], [1, 2, 3, 4, 5, 6]])


def variant(**values):
    """The model with values by dotted name, in which a dot is written as two underscores."""
    return tfm.override(CONFIG, {name.replace("__", "."): value for name, value in values.items()})


def parameters(config):
    """As initialized, plus noise, so that no two biases or norms are the same."""
    model = random_params(tfm.encoder_specs(config))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: leaf + jax.device_put(np.float32(0.1 * rng.normal(size=leaf.shape))), model)


states = jax.jit(tfm.encoder, static_argnums=1)


def test_embed_is_the_sum_of_three_tables(fill):
    tables = fill(tfm.embed_specs(CONFIG))
    positions, types = jnp.array([[0, 1, 2, 0, 1, 2]] * 2), jnp.array([[0, 0, 0, 1, 1, 1]] * 2)
    summed = tables.tokens[TOKENS] + tables.positions[positions] + tables.types[types]
    expected = tfm.layer_norm(tables.norm, summed, CONFIG.norm_eps)
    np.testing.assert_allclose(tfm.embed(tables, CONFIG, TOKENS, positions, types), expected, rtol=1e-5, atol=1e-5)


def test_embed_counts_positions_from_zero_and_takes_type_zero(fill):
    config = variant(input__norm=False)
    tables = fill(tfm.embed_specs(config))
    assert tables.norm is None
    expected = tables.tokens[TOKENS] + (tables.positions[:6] + tables.types[:1])[None]
    np.testing.assert_allclose(tfm.embed(tables, config, TOKENS), expected, rtol=1e-5, atol=1e-5)


def test_embed_scales_tokens_alone(fill):
    """By the root of the width (Vaswani et al. 2017, section 3.4)."""
    config = variant(input__norm=False, input__scale=True)
    tables = fill(tfm.embed_specs(config))
    expected = 4 * tables.tokens[TOKENS] + (tables.positions[:6] + tables.types[:1])[None]
    np.testing.assert_allclose(tfm.embed(tables, config, TOKENS), expected, rtol=1e-5, atol=1e-5)


def test_embed_maps_to_the_width_before_or_after_the_norm(fill):
    """ELECTRA's map is behind the norm and has a bias; DeBERTa's is before it and has none."""
    last, first = variant(input__width=6), variant(input__width=6, input__projection="first")

    def summed(tables):
        return tables.tokens[TOKENS] + (tables.positions[:6] + tables.types[:1])[None]

    tables = fill(tfm.embed_specs(last))
    normed = tfm.layer_norm(tables.norm, summed(tables), CONFIG.norm_eps)
    expected = normed @ tables.projection.kernel + tables.projection.bias[None, None]
    np.testing.assert_allclose(tfm.embed(tables, last, TOKENS), expected, rtol=1e-5, atol=1e-5)
    tables = fill(tfm.embed_specs(first))
    assert tables.projection.bias is None
    expected = tfm.layer_norm(tables.norm, summed(tables) @ tables.projection.kernel, CONFIG.norm_eps)
    np.testing.assert_allclose(tfm.embed(tables, first, TOKENS), expected, rtol=1e-4, atol=1e-5)


def test_embed_without_types_and_with_sines(fill):
    config = variant(input__token_types=None, input__norm=False, position="sinusoidal")
    tables = fill(tfm.embed_specs(config))
    assert tables.positions is None
    assert tables.types is None
    positions = jnp.broadcast_to(jnp.arange(6)[None], TOKENS.shape)
    expected = tables.tokens[TOKENS] + tfm.sinusoidal(positions, 16)
    np.testing.assert_allclose(tfm.embed(tables, config, TOKENS), expected, rtol=1e-5, atol=1e-5)


def test_too_many_tokens_for_the_position_table(fill):
    tables = fill(tfm.embed_specs(CONFIG))
    tokens = jnp.zeros((1, 13), jnp.int32)
    with pytest.raises(ValueError, match="13 tokens are more than the 12 positions of the model; shorten the input"):
        tfm.embed(tables, CONFIG, tokens)
    assert tfm.embed(tables, CONFIG, tokens, jnp.arange(13)[None] % 5).shape == (1, 13, 16)
    sines = variant(position="sinusoidal")
    assert tfm.embed(fill(tfm.embed_specs(sines)), sines, tokens).shape == (1, 13, 16)


@pytest.mark.slow
def test_an_encoder_is_embeddings_and_a_stack():
    """With positions, types and a key of its own for either."""
    config = variant(dropout=0.2, position="rotary")
    model, mask, key = parameters(config), tfm.padding(TOKENS > 0), jax.random.key(3)
    positions, types = jnp.array([[3, 4, 5, 0, 1, 2]] * 2), jnp.array([[0, 0, 0, 1, 1, 1]] * 2)

    @jax.jit
    def by_hand(model):
        embed_key, stack_key = jax.random.split(key)
        x = tfm.embed(model.embed, config, TOKENS, positions, types, embed_key)
        return tfm.stack(model, config, x, tfm.AttentionContext(positions, mask), key=stack_key)[0]

    y = states(model, config, TOKENS, mask, positions, types, key)
    np.testing.assert_allclose(y, by_hand(model), rtol=1e-5, atol=1e-5)


def in_loops(layer, x, read, base, sees_all):
    """Attention of read [T,D] to what is one position away or to all, with pairs rotated; added to x [T,D]."""
    q, k, v = (
        np.einsum("td,d...h->t...h", read, np.asarray(linear.kernel))
        for linear in (layer.query, layer.key, layer.value)
    )
    q = q.reshape(6, 4, 4)

    def turn(vector, position):
        angles = position / base ** (np.arange(2) / 2)
        first, second = vector[:2], vector[2:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, first * sin + second * cos])

    y = np.array(x)
    for i in range(6):
        seen = [j for j in range(6) if sees_all or abs(i - j) <= 1]
        heads = []
        for head in range(4):
            scores = np.array([turn(q[i, head], i) @ turn(k[j, head // 2], j) / 2 for j in seen])
            weights = np.exp(scores) / np.exp(scores).sum()
            heads.append(sum(weight * v[j, head // 2] for weight, j in zip(weights, seen, strict=True)))
        y[i] += np.concatenate(heads) @ np.asarray(layer.output.kernel).reshape(16, 16)
    return y


@pytest.mark.slow
@pytest.mark.parametrize("scan", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_layers_that_see_all_and_layers_that_see_what_is_near(scan):
    """ModernBERT (Warner et al. 2024): every second layer sees all and rotates slowly."""
    config = variant(scan=scan, **MODERNBERT)
    model = parameters(config)
    layers = model.layers
    repeated = [jax.tree.map(lambda leaf, row=row: leaf[row], tree) for row in range(2) for tree in layers.period]
    blocks = [layers.prefix[0], *repeated, layers.tail[0]]
    assert blocks[0].residual.mixer is None
    x = np.asarray(tfm.embed(model.embed, config, TOKENS))[0]
    for index, block in enumerate(blocks):
        norm, sees_all = block.residual.mixer, index % 2 == 0
        read = x if norm is None else np.asarray(tfm.layer_norm(norm, jnp.asarray(x, jnp.float32), config.norm_eps))
        x = in_loops(block.mixer, x, read, 700.0 if sees_all else 20.0, sees_all)
        normed = tfm.layer_norm(block.residual.feed_forward, jnp.asarray(x, jnp.float32), config.norm_eps)[None]
        x = x + np.asarray(tfm.feed_forward(block.feed_forward, config, normed))[0]
    expected = tfm.layer_norm(model.norm, jnp.asarray(x, jnp.float32), config.norm_eps)
    np.testing.assert_allclose(states(model, config, TOKENS)[0], expected, rtol=1e-4, atol=1e-4)


def test_padding_that_no_mask_hides_changes_a_text():
    """Or the test of padding in `contracts.py` would see nothing."""
    model, padded = parameters(CONFIG), jnp.concatenate([TOKENS[:, :4], TOKENS[:, 1:4]], axis=1)
    alone, together = states(model, CONFIG, TOKENS[:, :4]), states(model, CONFIG, padded)
    assert not np.allclose(together[:, :4], alone, atol=1e-2)


def test_packed_documents_have_no_influence_on_each_other():
    """By the largest gradient of each position for each."""
    model, ids = parameters(CONFIG), np.array([1, 1, 1, 1, 2, 2, 2])
    x = jax.device_put(np.float32(np.random.default_rng(1).normal(size=(1, 7, CONFIG.width))))
    context = context_of(x, tfm.segments(jnp.asarray(ids)[None]))
    jacobian = jax.jit(jax.jacrev(lambda x: tfm.stack(model, CONFIG, x, context)[0]))(x)
    influence = np.abs(jacobian).max(axis=(0, 2, 3, 5))
    np.testing.assert_array_equal(influence > 0, ids[:, None] == ids[None, :])


def test_without_positions_permuted_tokens_give_permuted_states():
    config, order = variant(position="none"), np.array([3, 1, 5, 0, 2, 4])
    model = parameters(config)
    expected = states(model, config, TOKENS)[:, order]
    np.testing.assert_allclose(states(model, config, TOKENS[:, order]), expected, rtol=1e-4, atol=1e-5)
    model = parameters(CONFIG)
    expected = states(model, CONFIG, TOKENS)[:, order]
    assert not np.allclose(states(model, CONFIG, TOKENS[:, order]), expected, atol=1e-2)


def test_dropout_of_embeddings_is_that_of_the_config(fill):
    config = dataclasses.replace(CONFIG, dropout=0.5)
    tables = fill(tfm.embed_specs(config))
    dropped = np.asarray(tfm.embed(tables, config, TOKENS, key=jax.random.key(0)))
    plain = np.asarray(tfm.embed(tables, config, TOKENS))
    kept = dropped != 0
    assert 0.3 < kept.mean() < 0.7
    np.testing.assert_allclose(dropped[kept], 2 * plain[kept], rtol=1e-6)


def test_hidden_states_of_stages_are_refused():
    config = tfm.Config(
        layers=1,
        width=16,
        heads=2,
        input=tfm.Patches(size=8, patch=2, cls=False),
        stages=(tfm.Stage(layers=1, width=32),),
    )
    with pytest.raises(ValueError, match="hidden_states reads one stage, and the model has 2; call encoder"):
        tfm.hidden_states(None, config, None)
