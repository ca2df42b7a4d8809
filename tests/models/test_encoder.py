import dataclasses
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.models.encoder import around, placed, unstack

pytestmark = pytest.mark.usefixtures("strict", "quick")

CONFIG = tfm.Config(
    layers=2, heads=4, kv_heads=2, width=16, ffn=24, vocab=60, vocab_multiple=64, length=12, dropout=0.0
)
UNEVEN = dict(
    layers=4, order="pre", norm="layer_no_bias", activation="geglu", position="rotary", bias=False, first_norm=False, window=3,
    global_every=2, rotary_base=700.0, rotary_base_near=20.0,
)  # fmt: skip
DISTANCES = dict(position="none", relative="c2p_p2c", relative_norm=True, buckets=8, bucket_distance=5)
TOKENS = jnp.array([[5, 59, 0, 7, 7, 31], [1, 2, 3, 4, 5, 6]])


def variant(**fields):
    return dataclasses.replace(CONFIG, **fields)


def parameters(config):
    """As initialized, but with larger weights, so that positions and attention matter."""
    return tfm.init(tfm.encoder_specs(dataclasses.replace(config, init_std=0.3)), jax.random.key(0))


def hidden(config, model, tokens, mask=None, **others):
    return np.asarray(
        jax.jit(lambda model, tokens, mask, others: tfm.encoder(model, config, tokens, mask, **others))(
            model, tokens, mask, others
        )
    )


def test_embed_is_the_sum_of_three_tables(fill):
    tables = fill(tfm.encoder_specs(CONFIG).embed)
    positions, types = jnp.array([[0, 1, 2, 0, 1, 2]] * 2), jnp.array([[0, 0, 0, 1, 1, 1]] * 2)
    summed = tables.tokens[TOKENS] + tables.positions[positions] + tables.types[types]
    expected = tfm.layer_norm(tables.norm, summed, CONFIG.norm_eps)
    np.testing.assert_allclose(tfm.embed(tables, CONFIG, TOKENS, positions, types), expected, rtol=1e-5, atol=1e-5)


def test_embed_counts_positions_from_zero_and_takes_type_zero(fill):
    config = variant(embed_norm=False)
    tables = fill(tfm.encoder_specs(config).embed)
    assert tables.norm is None
    expected = tables.tokens[TOKENS] + (tables.positions[:6] + tables.types[:1])[None]
    np.testing.assert_allclose(tfm.embed(tables, config, TOKENS), expected, rtol=1e-5, atol=1e-5)


def test_embed_maps_to_the_width_before_or_after_the_norm(fill):
    """ELECTRA's map is behind the norm and has a bias; DeBERTa's is before it and has none."""
    summed = lambda tables: tables.tokens[TOKENS] + (tables.positions[:6] + tables.types[:1])[None]
    last, first = variant(embed_width=6), variant(embed_width=6, embed_map="first")
    tables = fill(tfm.encoder_specs(last).embed)
    expected = (
        tfm.layer_norm(tables.norm, summed(tables), CONFIG.norm_eps) @ tables.up.kernel + tables.up.bias[None, None]
    )
    np.testing.assert_allclose(tfm.embed(tables, last, TOKENS), expected, rtol=1e-5, atol=1e-5)
    tables = fill(tfm.encoder_specs(first).embed)
    assert tables.up.bias is None
    expected = tfm.layer_norm(tables.norm, summed(tables) @ tables.up.kernel, CONFIG.norm_eps)
    np.testing.assert_allclose(tfm.embed(tables, first, TOKENS), expected, rtol=1e-4, atol=1e-5)


def test_embed_without_types_and_with_sines(fill):
    config = variant(token_types=0, position="sinusoidal", embed_norm=False)
    tables = fill(tfm.encoder_specs(config).embed)
    assert tables.positions is None
    assert tables.types is None
    positions = jnp.broadcast_to(jnp.arange(6)[None], TOKENS.shape)
    expected = tables.tokens[TOKENS] + tfm.sinusoidal(None, positions, 16)
    np.testing.assert_allclose(tfm.embed(tables, config, TOKENS), expected, rtol=1e-5, atol=1e-5)


def test_too_many_tokens_for_the_position_table(fill):
    tables = fill(tfm.encoder_specs(CONFIG).embed)
    tokens = jnp.zeros((1, 13), jnp.int32)
    with pytest.raises(ValueError, match="13 tokens are more than the 12 positions of the model; shorten the input"):
        tfm.embed(tables, CONFIG, tokens)
    assert tfm.embed(tables, CONFIG, tokens, jnp.arange(13)[None] % 5).shape == (1, 13, 16)
    sines = variant(position="sinusoidal")
    assert tfm.embed(fill(tfm.encoder_specs(sines).embed), sines, tokens).shape == (1, 13, 16)


def test_a_way_that_treats_all_layers_alike_is_refused_where_they_are_not():
    config = variant(**UNEVEN)
    with pytest.raises(ValueError, match="the layers of this model are not alike; .* near, which tfm.placed gives it"):
        tfm.stack(parameters(config), config, jnp.zeros((1, 6, 16)), tfm.Recorded())


def test_unstack():
    tree = {"a": jnp.arange(6).reshape(3, 2), "b": None, "c": jax.random.split(jax.random.key(0), 3)}
    parts = unstack(tree, 3)
    assert [part["a"].tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert [part["b"] for part in parts] == [None] * 3
    assert all(part["c"] == key for part, key in zip(parts, tree["c"], strict=True))


def test_stack_is_a_loop_over_blocks(fill):
    model = fill(tfm.encoder_specs(CONFIG))
    x = np.random.default_rng(1).normal(size=(2, 6, 16)).astype(np.float32)
    way = tfm.Dense(tfm.causal(), tfm.alibi(4, 2))
    expected = x
    for layer in range(CONFIG.layers):
        expected, _ = tfm.transformer_block(jax.tree.map(itemgetter(layer), model.blocks), CONFIG, expected, way)
    np.testing.assert_allclose(tfm.stack(model, CONFIG, x, way)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scan", [True, False])
def test_attention_weights_are_handed_back(fill, scan):
    """The recorded weights are those of the input of every layer, and recording changes nothing."""
    config = variant(scan=scan, position="rotary")
    model, way = fill(tfm.encoder_specs(config)), tfm.causal()
    positions = jnp.broadcast_to(jnp.arange(6)[None], TOKENS.shape)
    turns = tfm.rotary(config, positions)
    x = tfm.embed(model.embed, config, TOKENS)
    y, weights = tfm.stack(model, config, x, tfm.Recorded(way, turns=turns))
    np.testing.assert_allclose(y, tfm.encoder(model, config, TOKENS, way), rtol=1e-5, atol=1e-5)
    assert weights.shape == (2, 2, 2, 2, 6, 6)
    for layer in range(2):
        block = jax.tree.map(itemgetter(layer), model.blocks)
        q, k = (
            tfm.linear(each, f"BTD,D{head}->BT{head}", x)
            for each, head in ((block.attn.query, "KGH"), (block.attn.key, "KH"))
        )
        expected = tfm.attention_weights(tfm.rotate(q, turns), tfm.rotate(k, turns), way)
        np.testing.assert_allclose(weights[layer], expected, rtol=1e-5, atol=1e-6)
        x, _ = tfm.transformer_block(block, config, x, tfm.Dense(way, turns=turns))


@pytest.mark.parametrize(
    ("changed", "others"),
    [
        ({}, ({"scan": False},)),
        *(
            pytest.param(each, ({"scan": False}, {"remat": "block"}), marks=pytest.mark.slow)
            for each in (UNEVEN, DISTANCES)
        ),
        pytest.param({}, ({"remat": "block"}, {"remat": "dots"}, {"remat": "offload"}), marks=pytest.mark.slow),
    ],
    ids=["plain", "uneven", "distances", "kept"],
)
def test_scanned_unrolled_and_recomputed_are_the_same(changed, others):
    """Values and gradients, with dropout."""
    plain = variant(**changed)
    model = parameters(plain)
    projection = np.random.default_rng(1).normal(size=(2, 6, 16)).astype(np.float32)

    def run(**fields):
        config = dataclasses.replace(plain, dropout=0.1, **fields)

        def value(model):
            y = tfm.encoder(model, config, TOKENS, tfm.causal(), key=jax.random.key(1))
            return (y * projection).sum(), y

        (_, y), gradient = jax.jit(jax.value_and_grad(value, has_aux=True))(model)
        return [y, *jax.tree.leaves(gradient)]

    scanned = run(scan=True)
    assert not np.allclose(scanned[0], hidden(plain, model, TOKENS, tfm.causal()))
    for other in (run(**{"scan": True} | fields) for fields in others):
        for one, two in zip(scanned, other, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_every_layer_gets_a_key_of_its_own():
    config = variant(dropout=0.5)
    model = parameters(config)
    x = np.random.default_rng(1).normal(size=(1, 4, 16)).astype(np.float32)
    key = jax.random.key(0)
    expected = x
    for n, layer_key in enumerate(jax.random.split(key, 2)):
        expected, _ = tfm.transformer_block(jax.tree.map(itemgetter(n), model.blocks), config, expected, key=layer_key)
    np.testing.assert_allclose(tfm.stack(model, config, x, key=key)[0], expected, rtol=1e-4, atol=1e-5)


def test_only_pre_norm_has_a_last_norm(fill):
    assert tfm.encoder_specs(CONFIG).norm is None
    config = variant(order="pre")
    model = fill(tfm.encoder_specs(config))
    x, _ = tfm.stack(model.replace(norm=None), config, tfm.embed(model.embed, config, TOKENS))
    np.testing.assert_allclose(
        hidden(config, model, TOKENS), tfm.layer_norm(model.norm, x, config.norm_eps), rtol=1e-4, atol=1e-5
    )


def in_loops(layer, x, reads, base, far):
    """Attention of reads [T,D] to what is no more than one place away, or to everything, with pairs turned; added to x [T,D]."""
    q, k, v = (
        np.einsum("td,d...h->t...h", reads, np.asarray(each.kernel)) for each in (layer.query, layer.key, layer.value)
    )
    q = q.reshape(6, 4, 4)

    def turn(vector, place):
        angles = place / base ** (np.arange(2) / 2)
        one, two = vector[:2], vector[2:]
        return np.concatenate(
            [one * np.cos(angles) - two * np.sin(angles), one * np.sin(angles) + two * np.cos(angles)]
        )

    y = np.array(x)
    for i in range(6):
        seen = [j for j in range(6) if far or abs(i - j) <= 1]
        mixed = []
        for n in range(4):
            scores = np.array([turn(q[i, n], i) @ turn(k[j, n // 2], j) / 2 for j in seen])
            weights = np.exp(scores) / np.exp(scores).sum()
            mixed.append(sum(weight * v[j, n // 2] for weight, j in zip(weights, seen, strict=True)))
        y[i] += np.concatenate(mixed) @ np.asarray(layer.output.kernel).reshape(16, 16)
    return y


@pytest.mark.parametrize("scan", [True, False])
def test_layers_that_see_all_and_layers_that_see_what_is_near(scan):
    """ModernBERT (Warner et al. 2024): every second layer sees all and turns slowly; the first one reads the embeddings as they are."""
    config = variant(scan=scan, **UNEVEN)
    model = parameters(config)
    assert model.blocks.attn_norm.scale.shape == (3, 16)
    scales = model.blocks.attn_norm.scale + 0.3 * jnp.arange(48.0).reshape(3, 16) / 48
    model = model.replace(blocks=model.blocks.replace(attn_norm=tfm.Norm(scales, None)))
    x = np.asarray(tfm.embed(model.embed, config, TOKENS))[0]
    for number in range(4):
        block = jax.tree.map(itemgetter(number), model.blocks.replace(attn_norm=None))
        reads = x if number == 0 else np.asarray(tfm.layer_norm(tfm.Norm(scales[number - 1], None), x, config.norm_eps))
        far = number % 2 == 0
        x = in_loops(block.attn, x, reads, 700.0 if far else 20.0, far)
        normed = tfm.layer_norm(block.ffn_norm, jnp.asarray(x, jnp.float32), config.norm_eps)[None]
        x = x + np.asarray(tfm.feed_forward(block.ffn, config, normed))[0]
    expected = tfm.layer_norm(model.norm, jnp.asarray(x, jnp.float32), config.norm_eps)
    np.testing.assert_allclose(hidden(config, model, TOKENS)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("fields", "reach"), [({}, 2), ({"window": 5}, 4), ({"global_every": 2}, 5)])
def test_two_layers_with_a_window_reach_twice_as_far(fields, reach):
    """By gradient: an encoder's token sees window / 2 on either side, and everything where a layer is global."""
    config = variant(window=3, **fields) if "window" not in fields else variant(**fields)
    model = parameters(config)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(1, 6, 16)), jnp.float32)
    way = tfm.Dense(around(config), **placed(model, config, jnp.arange(6)[None], both=True))
    jacobian = jax.jit(jax.jacrev(lambda x: tfm.stack(model, config, x, way)[0]))(x)
    found = np.abs(jacobian).max(axis=(0, 2, 3, 5)) > 0
    np.testing.assert_array_equal(found, np.abs(np.subtract.outer(np.arange(6), np.arange(6))) <= reach)


@pytest.mark.parametrize(
    "fields", [{}, {"order": "pre", "norm": "rms", "activation": "swiglu", "position": "sinusoidal"}, UNEVEN, DISTANCES]
)
def test_padding_does_not_matter(fields):
    config = variant(**fields)
    model = parameters(config)
    alone = hidden(config, model, TOKENS[:1, :4])
    padded = jnp.array([[5, 59, 0, 7, 9, 9, 9], [5, 59, 0, 7, 1, 2, 3]])
    valid = jnp.arange(7)[None] < jnp.array([[4], [4]])
    together = hidden(config, model, padded, tfm.padding(valid))
    np.testing.assert_allclose(together[0, :4], alone[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(together[1, :4], alone[0], rtol=1e-5, atol=1e-5)
    assert not np.allclose(hidden(config, model, padded)[0, :4], alone[0], atol=1e-2)


def test_packed_documents_are_as_separate_ones():
    model = parameters(CONFIG)
    one, two = TOKENS[:1, :4], TOKENS[1:, :3]
    packed = jnp.concatenate([one, two], axis=1)
    mask, positions = tfm.segments(jnp.array([[1, 1, 1, 1, 2, 2, 2]])), jnp.array([[0, 1, 2, 3, 0, 1, 2]])
    together = hidden(CONFIG, model, packed, mask, positions=positions)
    np.testing.assert_allclose(together[:, :4], hidden(CONFIG, model, one), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(together[:, 4:], hidden(CONFIG, model, two), rtol=1e-5, atol=1e-5)


def influence(model, mask, length):
    """How much output position i depends on input position j, [i,j], by the largest gradient."""
    x = jnp.asarray(np.random.default_rng(1).normal(size=(1, length, CONFIG.width)), jnp.float32)
    jacobian = jax.jit(jax.jacrev(lambda x: tfm.stack(model, CONFIG, x, tfm.Dense(mask))[0]))(x)
    return np.abs(jacobian).max(axis=(0, 2, 3, 5))


def test_packed_documents_have_no_influence_on_each_other():
    own = np.array([1, 1, 1, 1, 2, 2, 2])
    found = influence(parameters(CONFIG), tfm.segments(jnp.asarray(own)[None]), 7)
    np.testing.assert_array_equal(found > 0, own[:, None] == own[None, :])


def test_nothing_later_has_influence_under_a_causal_mask():
    found = influence(parameters(CONFIG), tfm.causal(), 6)
    np.testing.assert_array_equal(found > 0, np.tril(np.ones((6, 6), bool)))


def test_without_positions_permuted_tokens_give_permuted_states():
    config = variant(position="none")
    order = np.array([3, 1, 5, 0, 2, 4])
    model = parameters(config)
    np.testing.assert_allclose(
        hidden(config, model, TOKENS[:, order]), hidden(config, model, TOKENS)[:, order], rtol=1e-5, atol=1e-5
    )
    placed = parameters(CONFIG)
    assert not np.allclose(
        hidden(CONFIG, placed, TOKENS[:, order]), hidden(CONFIG, placed, TOKENS)[:, order], atol=1e-2
    )


@pytest.mark.parametrize(
    "fields", [{}, {"order": "pre", "norm": "rms", "activation": "geglu", "position": "sinusoidal", "bias": False}]
)
def test_bfloat16_is_near_float32(fields):
    half = variant(dtype="bfloat16", **fields)
    model = parameters(half)
    y = jax.jit(lambda model: tfm.encoder(model, half, TOKENS, key=jax.random.key(0)))(model)
    assert y.dtype == jnp.bfloat16
    wide = hidden(variant(**fields), model, TOKENS)
    assert np.abs(np.asarray(y, np.float32) - wide).max() < 0.1 * np.abs(wide).max()
