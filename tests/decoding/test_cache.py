import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.decoding.cache import Cached, Kept

pytestmark = pytest.mark.usefixtures("strict", "quick")

CONFIG = tfm.Config(
    layers=2,
    heads=4,
    kv_heads=2,
    width=16,
    ffn=24,
    vocab=60,
    vocab_multiple=64,
    length=16,
    token_types=0,
    dropout=0.0,
    init_std=0.3,
)
TOKENS = jnp.array([[5, 59, 0, 7, 7, 31, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8]])
NEAR = dict(rtol=1e-4, atol=1e-5)


def variant(**fields):
    config = dataclasses.replace(CONFIG, **fields)
    return config, tfm.init(tfm.causal_lm_specs(config), jax.random.key(0))


def read(config, model, parts, starts, slots=12):
    """Hidden states [B,T,D] of all parts, the first of which fills the cache, and the cache after them."""

    def run(model, parts, starts):
        x, cache = tfm.prefill(model.decoder, config, parts[0], starts, slots)
        states = [x]
        for part in parts[1:]:
            x, cache = tfm.extend(model.decoder, config, part, cache)
            states.append(x)
        return jnp.concatenate(states, axis=1), cache

    return jax.jit(run)(model, parts, starts)


def whole(config, model, tokens=TOKENS):
    """Hidden states and logits without a cache."""
    hidden = lambda model, tokens: tfm.decoder(model.decoder, config, tokens)
    return jax.jit(lambda model, tokens: (hidden(model, tokens), tfm.causal_lm(model, config, tokens)))(model, tokens)


def apart(tokens, *lengths):
    return jnp.split(tokens, np.cumsum(lengths)[:-1], axis=1)


def test_a_cache_holds_all_positions_where_context_spreads_them():
    """Prompts and later parts whose length the devices divide; rows, too, and heads."""
    config, model = variant(position="rotary")
    parts, starts = apart(TOKENS, 4, 2, 2), jnp.array([0, 2])
    expected, kept = read(config, model, parts, starts)
    mesh = tfm.make_mesh(2, 1, 2, 2)
    with jax.set_mesh(mesh):
        model = jax.device_put(model, tfm.shardings(tfm.causal_lm_specs(config), mesh))
        parts, starts = jax.device_put((parts, starts), jax.NamedSharding(mesh, jax.P("data")))
        found, cache = read(config, model, parts, starts)
    for one, two in zip(jax.tree.leaves((found, cache)), jax.tree.leaves((expected, kept)), strict=True):
        np.testing.assert_allclose(one, two, **NEAR)
    assert jax.typeof(cache.keys).sharding.spec[2] is None


VARIANTS = {
    "learned": {},
    "rotary": {"position": "rotary"},
    "sinusoidal": {"position": "sinusoidal", "scan": False},
    "none": {"position": "none", "order": "pre"},
    "llama": {
        "position": "rotary",
        "order": "pre",
        "norm": "rms",
        "activation": "swiglu",
        "scan": False,
        "bias": False,
        "tied": False,
    },
    "plain_heads": {"kv_heads": 0, "order": "pre"},
    "one_kv_head": {"kv_heads": 1},
    "window": {"position": "rotary", "window": 3},
    "uneven": {
        "layers": 3,
        "position": "rotary",
        "rotary_base_near": 50.0,
        "window": 2,
        "global_every": 2,
        "order": "pre",
        "first_norm": False,
    },
    "neox": {"position": "rotary", "order": "parallel", "rotary_share": 0.5, "scan": False},
    "qwen": {
        "position": "rotary",
        "order": "pre",
        "norm": "rms",
        "qk_norm": True,
        "head_size": 6,
        "activation": "swiglu",
        "bias": False,
    },
    "buckets": {
        "position": "buckets",
        "order": "pre",
        "norm": "rms",
        "buckets": 8,
        "bucket_distance": 6,
        "bias": False,
    },
    "shared": {"shared": True, "output_bias": True, "embed_width": 6, "tied": False},
}
SLOW = ("sinusoidal", "none", "plain_heads", "learned", "llama", "window", "one_kv_head", "shared", "qwen", "neox")


@pytest.mark.parametrize(
    "fields",
    [pytest.param(fields, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, fields in VARIANTS.items()],
)
def test_with_a_cache_as_without(fields):
    """The prompt alone, one more token, several more, and one after these."""
    config, model = variant(**fields)
    full, logits = whole(config, model)
    states, cache = read(config, model, apart(TOKENS, 3, 1, 3, 1), jnp.zeros(2, jnp.int32))
    np.testing.assert_allclose(states, full, **NEAR)
    assert int(cache.length) == 8
    assert cache.keys.shape == cache.values.shape == (config.layers, 2, 12, config.sizes["K"], config.sizes["H"])
    np.testing.assert_allclose(tfm.next_logits(model, config, states), logits, rtol=1e-4, atol=1e-4)
    assert not np.allclose(logits[:, 1:], logits[:, :-1], atol=1e-2)


def test_a_token_at_a_time_from_the_first_on():
    config, model = variant(position="rotary")
    states, cache = read(config, model, apart(TOKENS, 1, 1, 1, 1, 4), jnp.zeros(2, jnp.int32), slots=8)
    np.testing.assert_allclose(states, whole(config, model)[0], **NEAR)
    assert int(cache.length) == cache.keys.shape[2] == 8


@pytest.mark.parametrize(
    "position", ["rotary", *(pytest.param(name, marks=pytest.mark.slow) for name in ("learned", "none"))]
)
def test_padding_on_the_left_changes_nothing(position):
    """Each row is as when it stands alone, whatever its padding holds."""
    config, model = variant(position=position)
    starts = jnp.array([3, 0])
    parts = [jnp.array([[58, 57, 56, 5, 59], [1, 2, 3, 4, 5]]), jnp.array([[0], [6]]), jnp.array([[7, 7], [7, 8]])]
    states, _ = read(config, model, parts, starts)
    for row, start in enumerate([3, 0]):
        tokens = jnp.concatenate([part[row : row + 1] for part in parts], axis=1)[:, start:]
        np.testing.assert_allclose(states[row : row + 1, start:], whole(config, model, tokens)[0], **NEAR)


def test_what_the_free_slots_and_the_padding_hold_does_not_matter():
    config, model = variant(position="rotary")
    starts = jnp.array([2, 0])
    _, cache = read(config, model, [TOKENS[:, :5]], starts)
    slot = jnp.arange(12)[None]
    unused = ((slot >= 5) | (slot < starts[:, None]))[None, :, :, None, None]
    spoilt = dataclasses.replace(
        cache, keys=jnp.where(unused, 1e6, cache.keys), values=jnp.where(unused, -1e6, cache.values)
    )
    extend = jax.jit(lambda model, cache: tfm.extend(model.decoder, config, TOKENS[:, 5:7], cache)[0])
    np.testing.assert_array_equal(extend(model, spoilt), extend(model, cache))
    broken = dataclasses.replace(cache, values=jnp.where(unused, cache.values, -1e6))
    assert not np.allclose(extend(model, broken), extend(model, cache), atol=1e-2)


def test_extending_writes_behind_and_touches_nothing_else():
    config, model = variant()
    _, before = read(config, model, [TOKENS[:, :5]], jnp.zeros(2, jnp.int32))
    _, after = read(config, model, apart(TOKENS[:, :7], 5, 2), jnp.zeros(2, jnp.int32))
    for one, two in ((before.keys, after.keys), (before.values, after.values)):
        np.testing.assert_array_equal(one[:, :, 5:], 0)
        np.testing.assert_array_equal(two[:, :, 7:], 0)
        np.testing.assert_allclose(two[:, :, :5], one[:, :, :5], **NEAR)
        assert (np.asarray(two[:, :, 5:7]) != 0).any(axis=(3, 4)).all()


@pytest.mark.slow
@pytest.mark.parametrize("mask", [tfm.causal(), tfm.window(2, 0), None], ids=["causal", "window", "unmasked"])
def test_the_cached_way_adds_a_bias_and_asks_the_mask(mask):
    """As the last rows of plain attention over everything; without a mask the new tokens see each other both ways."""
    rng = np.random.default_rng(0)
    q, k, v = (
        jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((2, 7, 2, 2, 4), (2, 7, 2, 4), (2, 7, 2, 4))
    )
    turns = tfm.rotary(tfm.Config(heads=4, width=16, position="rotary"), jnp.arange(7)[None])
    bias = tfm.alibi(4, kv_heads=2)
    expected, _ = tfm.Dense(mask, bias, turns)(q, k, v)
    _, (kept_k, kept_v) = Kept(mask, bias, turns[:, :4])(q[:, :4], k[:, :4], v[:, :4])
    np.testing.assert_allclose(kept_k, tfm.rotate(k, turns)[:, :4], rtol=1e-6)
    past = [jnp.pad(each, ((0, 0), (0, 5), (0, 0), (0, 0)), constant_values=9) for each in (kept_k, kept_v)]
    y, (new_k, new_v) = Cached(mask, bias, turns[:, 4:], length=jnp.int32(4))(q[:, 4:], k[:, 4:], v[:, 4:], past)
    np.testing.assert_allclose(y, expected[:, 4:], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(new_k, tfm.rotate(k, turns)[:, 4:], rtol=1e-6)
    np.testing.assert_array_equal(new_v, v[:, 4:])


def test_bfloat16_is_kept_as_such():
    config, model = variant(dtype="bfloat16", position="rotary")
    states, cache = read(config, model, apart(TOKENS, 6, 1, 1), jnp.zeros(2, jnp.int32))
    assert {states.dtype, cache.keys.dtype, cache.values.dtype} == {jnp.dtype(jnp.bfloat16)}
    wide = np.asarray(whole(dataclasses.replace(config, dtype="float32"), model)[0])
    assert np.abs(np.asarray(states, np.float32) - wide).max() < 0.1 * np.abs(wide).max()
