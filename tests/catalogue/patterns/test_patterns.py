"""Patterns: their rules, what they skip, where they begin, and what a decoder remembers under them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from masks.test_masks import seen_blocks
from oracles import patterns
from random_params import random_params
from variants import BASE

import tfm
from tfm.attention.kernels import passes
from tfm.catalogue.options.patterns import BigBird, Etc, Fixed, Global, Sliding, Strided
from tfm.catalogue.patterns.bigbird import random_blocks
from tfm.catalogue.patterns.longformer import GlobalProjections
from tfm.config.patterns import Full, Local
from tfm.mixers.softmax import pattern_mask

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]

LENGTH = 45  # which neither blocks nor strides divide
OPTIONS = {
    "full": Full(),
    "local": Local(block=8),
    "neighbours": Local(block=4, neighbours=2),
    "sliding": Sliding(window=5),
    "dilated": Sliding(window=5, dilation=3),
    "wider than the text": Sliding(window=200),
    "strided": Strided(stride=6),
    "fixed": Fixed(block=8, summary=3),
    "summaries": Fixed(block=8, summary=3, own_block=False),
    "global": Global(window=6, tokens=3),
    "places": Global(window=6, places="9,0,10,37,44,63"),
    "etc": Etc(radius=4, tokens=5, labels=2),
    "bigbird": BigBird(block=4, global_blocks=1, random=2),
    "no random blocks": BigBird(block=4, window=5, global_blocks=0, random=0),
}
CONFIG = dataclasses.replace(BASE, length=64)


def mask_of(options, causal, restarts=False, positions=None):
    positions = jnp.arange(LENGTH)[None] if positions is None else positions
    context = tfm.AttentionContext(positions, causal=causal, restarts=restarts)
    return pattern_mask(options, CONFIG, context)


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "full"])
def test_patterns_follow_their_rules_and_know_what_they_skip(name, causal):
    """Pair by pair; blocks are exact, whatever their size; and the mask is the same where texts may restart."""
    rule = patterns.rule_of(OPTIONS[name], CONFIG, causal)
    mask = mask_of(OPTIONS[name], causal)
    np.testing.assert_array_equal(mask.dense(LENGTH)[0], patterns.table(rule, LENGTH))
    for sizes in ((4, 4), (8, 4), (4, 16), (7, 5)):
        np.testing.assert_array_equal(mask.blocks(*sizes, LENGTH, LENGTH), seen_blocks(rule, *sizes, LENGTH, LENGTH))
    again = mask_of(OPTIONS[name], causal, restarts=True)
    np.testing.assert_array_equal(again.dense(LENGTH)[0], patterns.table(rule, LENGTH))


@pytest.mark.parametrize("name", ["local", "fixed", "summaries", "global", "places", "bigbird"])
def test_texts_of_a_row_have_their_own_blocks_and_global_tokens(name):
    lengths = [7, 20, 18]
    positions = np.concatenate([np.arange(length) for length in lengths])
    mask = mask_of(OPTIONS[name], False, True, jnp.asarray(positions)[None]) & tfm.segments(
        jnp.asarray(np.repeat([1, 2, 3], lengths))[None]
    )
    allowed = np.asarray(mask.dense(LENGTH)[0])
    rule = patterns.rule_of(OPTIONS[name], CONFIG, False)
    for start, length in zip(np.cumsum(lengths) - lengths, lengths, strict=True):
        part = allowed[start : start + length]
        np.testing.assert_array_equal(part[:, start : start + length], patterns.table(rule, length))
        assert part.sum() == patterns.table(rule, length).sum()


def slow_but(name):
    """All options; those without this name are slow tests."""
    return [pytest.param(option, marks=() if option == name else pytest.mark.slow) for option in OPTIONS]


def test_column_order():
    order = passes.ColumnOrder(3, 8)
    x = jnp.arange(8.0)[None]
    np.testing.assert_array_equal(order.sort(x)[0], [0, 3, 6, 1, 4, 7, 2, 5, 0])
    np.testing.assert_array_equal(order.unsort(order.sort(x)), x)
    np.testing.assert_array_equal(order.position(np.arange(9)), [0, 3, 6, 1, 4, 7, 2, 5, 8])


def test_pairs_that_long_texts_visit():
    """Twice the length, twice the blocks of pairs: local blocks, windows, strides in column order, BigBird."""
    config = dataclasses.replace(BASE, length=16384)
    for options in (Local(), Sliding(), Sliding(window=64, dilation=8), Strided(stride=256), Global(), BigBird()):
        pairs = {}
        for length in (8192, 16384):
            context = tfm.AttentionContext(jnp.arange(1)[None], causal=True, restarts=False)
            parts = passes.passes(pattern_mask(options, config, context), length, length)
            pairs[length] = passes._pairs(parts, length)
        assert pairs[16384] < 2.1 * pairs[8192], options
        assert pairs[16384] < 0.06 * (16384 / 64) ** 2, options


def test_random_blocks():
    """They depend on the seed, are neither near nor global nor later, and each row has as many as there can be."""
    options = BigBird(block=4, global_blocks=1, random=2, seed=3)
    table = np.array(random_blocks(options, 80, False))
    assert table.shape == (20, 2)
    for block, row in enumerate(table):
        assert len({*row}) == 2
        assert all(chosen >= 1 and abs(chosen - block) > 1 for chosen in row)
    assert (table != np.array(random_blocks(dataclasses.replace(options, seed=4), 80, False))).any()
    causal = random_blocks(options, 80, True)
    assert all(chosen < block - 2 for block, row in enumerate(causal) for chosen in row if chosen >= 0)
    assert [sum(chosen >= 0 for chosen in row) for row in causal[:6]] == [0, 0, 0, 0, 1, 2]


ALTERNATING = {
    "strided": (Strided(stride=6), [Sliding(window=7), Sliding(window=8, dilation=6)]),
    "fixed": (Fixed(block=8, summary=3), [Local(block=8), Fixed(block=8, summary=3, own_block=False)]),
}


@pytest.mark.parametrize("name", ALTERNATING)
def test_layers_that_take_turns_see_together_what_a_merged_head_sees(name):
    """Child et al. 2019, section 5.2; no token sees nothing."""
    merged, layers = ALTERNATING[name]
    first, second = (mask_of(layer, True).dense(LENGTH)[0] for layer in layers)
    np.testing.assert_array_equal(first | second, mask_of(merged, True).dense(LENGTH)[0])
    assert first.any(1).all()
    assert second.any(1).all()


def test_kinds_of_layers_have_random_blocks_of_their_own():
    values = {"mixer.pattern": "bigbird", "mixer.pattern.block": 2, "period": 2, "period.1.mixer": "softmax"}
    values |= {f"period.1.{name}": value for name, value in values.items() if name.startswith("mixer.")}
    config = tfm.override(CONFIG, values | {"period.1.mixer.pattern.seed": 1})
    masks = [mask_of(kind.mixer.pattern, False).dense(LENGTH)[0] for kind in config.kinds]
    assert len(masks) == 2
    assert (masks[0] != masks[1]).any()


REMEMBERED = {"local": 7, "neighbours": 11, "sliding": 4, "dilated": 12, "no random blocks": 19}


@pytest.mark.parametrize("name", slow_but("sliding"))
def test_memory_of_a_decode_state(name):
    """Under a pattern with an end it does not grow with the text."""
    config = dataclasses.replace(CONFIG, mixer=tfm.Config().mixer.__class__(pattern=OPTIONS[name]))
    params = tfm.abstract(tfm.causal_lm_specs(config))
    tokens, starts = jax.ShapeDtypeStruct((2, 20), jnp.int32), jax.ShapeDtypeStruct((2,), jnp.int32)

    def slots(count):
        run = lambda params, tokens, starts: tfm.prefill(params.decoder, config, tokens, starts, count)[1]
        return jax.eval_shape(run, params, tokens, starts).states.period[0].keys.shape[3]

    if name in REMEMBERED:
        assert slots(32) == slots(4096) == REMEMBERED[name]
    else:
        assert (slots(32), slots(64)) == (32, 64)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "dilated" else pytest.mark.slow) for name in REMEMBERED]
)
def test_a_state_that_is_full_is_written_from_its_start_again(name):
    """A prompt shorter than the state, parts that are shorter and longer than it, and single tokens; with padding on
    the left."""
    config = dataclasses.replace(CONFIG, mixer=tfm.Config().mixer.__class__(pattern=OPTIONS[name]))
    params = random_params(tfm.causal_lm_specs(config)).decoder
    tokens = jax.device_put(np.int32(np.random.default_rng(0).integers(0, 60, (2, 40))))

    @jax.jit
    def cached(tokens, starts):
        states, cache = tfm.prefill(params, config, tokens[:, :3], starts, 40)
        parts, first = [states], 3
        for count in (2, 20, 1, 1, 1, 5, 7):
            states, cache = tfm.extend(params, config, tokens[:, first : first + count], cache)
            parts, first = [*parts, states], first + count
        return jnp.concatenate(parts, axis=1)

    full = jax.jit(tfm.decoder, static_argnums=1)
    padded = tokens.at[0].set(jnp.roll(tokens[0], 2))
    states = cached(padded, jnp.array([2, 0]))
    np.testing.assert_allclose(states[0, 2:], full(params, config, tokens)[0, :38], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(states[1], full(params, config, tokens)[1], rtol=1e-4, atol=1e-5)


def test_own_projections_are_for_encoders_of_single_texts():
    config = tfm.override(BASE, {"mixer.pattern": "global", "mixer.pattern.projections": True})
    assert not config.reads_packed
    params = tfm.abstract(tfm.encoder_specs(config))
    tokens = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    with pytest.raises(tfm.VariantError, match="global with projections reads texts from both sides"):
        jax.eval_shape(lambda params, tokens: tfm.decoder(params, config, tokens), params, tokens)
    packed = lambda params, tokens: tfm.encoder(params, config, tokens, tfm.segments(tokens))
    with pytest.raises(tfm.VariantError, match="each in a row of its own; try mixer.pattern.projections=false"):
        jax.eval_shape(packed, params, tokens)


@pytest.mark.parametrize("position", ["rotary", "alibi"])
def test_own_projections_equal_to_those_of_the_layer_change_nothing(position):
    """Queries of global tokens are where their tokens are; a text may end before some of the places."""
    values = {"mixer.pattern": "global", "mixer.pattern.window": 4, "mixer.pattern.places": "4,0,5,15"}
    shared = tfm.override(BASE, values | {"position": position})
    own = tfm.override(shared, {"mixer.pattern.projections": True})
    params = random_params(tfm.encoder_specs(shared))
    (layer,), mixer = params.layers.period, params.layers.period[0].mixer
    projections = GlobalProjections(mixer.query, mixer.key, mixer.value)
    period = (layer.replace(mixer=mixer.replace(pattern=projections)),)
    again = params.replace(layers=params.layers.replace(period=period))
    tokens = jax.device_put(np.int32(np.random.default_rng(0).integers(0, 60, (2, 12))))
    mask = tfm.padding(jnp.arange(12)[None] < jnp.array([[12], [9]]))
    expected, actual = tfm.encoder(params, shared, tokens, mask), tfm.encoder(again, own, tokens, mask)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_random_blocks_of_packed_rows_on_a_mesh():
    """Rows of a batch lie on devices, and so do the places at which the table of blocks is asked."""
    config = tfm.Config(layers=1, heads=2, width=16, ffn=16, vocab=40, pad_vocab_to=8, length=32, dropout=0.0)
    config = tfm.override(config, {"mixer.pattern": "bigbird", "mixer.pattern.block": 4, "kernel": "einsum"})
    specs = tfm.encoder_specs(config)
    params = random_params(specs)
    rng = np.random.default_rng(0)
    tokens = jax.device_put(np.int32(rng.integers(0, 40, (8, 32))))
    lengths = rng.integers(8, 24, 8)[:, None]
    segments = jnp.asarray(1 + (np.arange(32)[None] >= lengths), jnp.int32)
    positions = jnp.asarray(np.where(segments == 1, np.arange(32)[None], np.arange(32)[None] - lengths), jnp.int32)

    @jax.jit
    def states(params, tokens, segments, positions):
        return tfm.encoder(params, config, tokens, tfm.segments(segments), positions)

    expected = states(params, tokens, segments, positions)
    mesh = tfm.make_mesh(data=4, fsdp=2)
    rows = jax.NamedSharding(mesh, jax.P(("data", "fsdp")))
    with jax.set_mesh(mesh):
        sharded = jax.device_put(params, tfm.shardings(specs, mesh))
        actual = states(sharded, *(jax.device_put(x, rows) for x in (tokens, segments, positions)))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
