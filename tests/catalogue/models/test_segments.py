"""Texts in segments with a memory: as in one piece, by loops over pairs, and as far back as layers see."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from oracles import positions as oracles
from random_params import random_params
from variants import BASE, VARIANTS, _layer

import tfm
from tfm.catalogue.models.segments import SegmentContext, SegmentStates

pytestmark = pytest.mark.usefixtures("strict")

TOKENS = jax.device_put(np.int32(np.random.default_rng(0).integers(0, 60, (2, 12))))
XL = {"position": "transformer_xl"}
SMALL = {"layers": 1, "length": 32}

# Rows of `variants.VARIANTS` that read segments: every position that does, patterns, scores, and kinds of layers.
ROWS = (
    "rotary rotary_fraction t5 alibi none shaw huang_1 huang_3 huang_4 sinusoidal_relative additive sliding gpt3 "
    "modernbert t5_alternating"
).split()


def model(values):
    """A configuration and its parameters."""
    config = tfm.override(BASE, values)
    return config, random_params(tfm.encoder_specs(config))


def read(config, params, tokens, cuts, size):
    """The states of tokens [B,T], read in segments that end at the cuts, with a memory of `size` tokens."""
    memory, states = tfm.segment_memory(config, len(tokens), size), []
    for start, end in zip([0, *cuts], [*cuts, tokens.shape[1]], strict=True):
        segment, memory = tfm.read_segment(params, config, tokens[:, start:end], memory)
        states.append(segment)
    return jnp.concatenate(states, axis=1), memory


def assert_reads_segments(config, params):
    """With a memory as long as the text, segments of any lengths have the states of one piece."""
    segments, memory = jax.jit(read, static_argnums=(0, 3, 4))(config, params, TOKENS, (5, 6), 12)
    whole_text = jax.jit(tfm.decoder, static_argnums=1)(params, config, TOKENS)
    np.testing.assert_allclose(segments, whole_text, rtol=1e-5, atol=1e-5)
    assert memory.lengths.tolist() == [12, 12]


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 3])
def test_segments_with_a_long_memory_are_the_text_in_one_piece(layers):
    assert_reads_segments(*model(XL | SMALL | {"layers": layers}))


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_variants_read_segments(name):
    values = VARIANTS[name].values | {"length": 32}
    positions = VARIANTS[name].config.positions
    values |= {} if all(options.reads_segments for options in positions) else {"position": "shaw"}
    assert_reads_segments(*model(values))


@pytest.mark.slow
@pytest.mark.parametrize("values", [{"scan": False}, {"remat": "block"}, {"kernel": "chunked"}, {"residual": "pre"}])
def test_segments_by_other_programs(values):
    assert_reads_segments(*model(SMALL | {"position": "rotary", "layers": 2} | values))


@pytest.mark.parametrize("values", [{}, {"residual": "pre", "period": 2, "prefix": 1, "remat": "block"}])
def test_a_memory_keeps_its_type(values):
    """In bfloat16 too: a program that reads a segment serves the next one."""
    config = tfm.override(BASE, XL | {"dtype": "bfloat16"} | values)
    params = tfm.abstract(tfm.encoder_specs(config))
    memory = jax.eval_shape(lambda: tfm.segment_memory(config, 2, 4))
    after = jax.eval_shape(lambda *args: tfm.read_segment(args[0], config, *args[1:]), params, TOKENS, memory)[1]
    assert after == memory


def test_memory_is_a_loop_over_pairs():
    """One layer of attention, states of the segment before included: Dai et al. 2019, section 3.3, by numpy."""
    config, rng = tfm.override(BASE, XL), np.random.default_rng(0)
    mixer, position = tfm.mixer_of(config.mixer), tfm.position_of(config.position)
    trees = mixer.specs(config.mixer, config), *(f(config.position, config) for f in position[2:4])
    layer, shared, projection = (jax.tree.map(lambda spec: rng.normal(size=spec.shape), tree) for tree in trees)
    past, x = rng.normal(size=(2, 3, 16)), rng.normal(size=(2, 4, 16))
    context = SegmentContext(3 + jnp.arange(4)[None], causal=True, restarts=False, past=3)
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (layer, shared, projection, past, x))

    def forward(layer, shared, projection, past, x):
        prepared = position.prepare(tfm.LayerCall(config.position, config, shared), context)
        call = tfm.LayerCall(config.position, config, projection, prepared, None)
        prepared = mixer.prepare(tfm.LayerCall(config.mixer, config), context)
        mixer_call = tfm.LayerCall(config.mixer, config, layer, prepared, None)
        score = lambda q, k, layer: position.score(call, q, k, layer)
        return mixer.forward(mixer_call, x, score, SegmentStates(past))[0]

    states = np.concatenate([past, x], axis=1)
    q, k, v = (
        np.einsum("bsd,d...->bs...", rows, part.kernel) + part.bias
        for rows, part in ((x, layer.query), (states, layer.key), (states, layer.value))
    )
    heads = oracles.attention(q, k, v, *oracles.transformer_xl(shared, projection.kernel, 16), causal=True)
    expected = np.einsum("btkgh,kghd->btd", heads, layer.output.kernel) + layer.output.bias
    np.testing.assert_allclose(jax.jit(forward)(*single), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_no_gradient_reaches_a_memory_and_the_keys_of_a_memory_train():
    config, params = model(XL | SMALL)
    _, memory = tfm.read_segment(params, config, TOKENS[:, :6], tfm.segment_memory(config, 2, 6))

    def loss(params, states, lengths):
        hidden, _ = tfm.read_segment(params, config, TOKENS[:, 6:], memory.replace(states=states, lengths=lengths))
        return (hidden * jnp.cos(jnp.arange(hidden.size).reshape(hidden.shape))).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    of_params, of_states = gradient(params, memory.states, memory.lengths)
    assert not any(leaf.any() for leaf in jax.tree.leaves(of_states))
    without, _ = gradient(params, memory.states, jnp.zeros_like(memory.lengths))
    keys, keys_without = (tree.layers.period[0].mixer.key.kernel for tree in (of_params, without))
    assert np.abs(keys - keys_without).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_layers_see_a_memory_further_each(layers):
    """The last token of a text in segments of 2, each with a memory of 2: one layer sees 4 tokens, each further one 2
    more; tokens before them change nothing."""
    config, params = model(XL | SMALL | {"layers": layers})
    last = jax.jit(lambda tokens: read(config, params, tokens, (2, 4, 6, 8, 10), 2)[0][:, -1])
    reference = last(TOKENS)
    changed = [bool((np.abs(last(TOKENS.at[:, t].add(1)) - reference) > 1e-6).any()) for t in range(12)]
    first = 12 - 2 - 2 * layers
    assert changed == [False] * first + [True] * (12 - first)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer_xl", "rotary", "t5", "alibi", "shaw", "gpt3"])
def test_a_decoder_keeps_the_memory_in_a_ring(name):
    """Token by token, a memory of 3 is a cache of 3 slots, which does not grow with the text."""
    values = VARIANTS[name].values | {"length": 32}
    values |= {} if name != "gpt3" else XL | _layer(1, XL)
    config, params = model(values)
    states, _ = read(config, params, TOKENS, tuple(range(1, 12)), 3)
    ring = config.within(3)
    hidden, cache = tfm.prefill(params, ring, TOKENS[:, :5], jnp.zeros(2, jnp.int32), 12)
    outputs = [hidden]
    for t in range(5, 12):
        hidden, cache = tfm.extend(params, ring, TOKENS[:, t : t + 1], cache)
        outputs.append(hidden)
    np.testing.assert_allclose(jnp.concatenate(outputs, axis=1)[:, :12], states, rtol=1e-4, atol=1e-5)
    assert {leaf.shape[3] for leaf in jax.tree.leaves(cache.states)} == {3}


@pytest.mark.slow
@pytest.mark.parametrize("mesh_name", [(2, 2, 2, 1), (2, 1, 2, 2)], ids=["fsdp_tensor", "tensor_context"])
@pytest.mark.parametrize("position", ["transformer_xl", "rotary"])
def test_eight_devices_are_one(position, mesh_name):
    config, params = model({"position": position, "length": 32, "dropout": 0.1})
    specs = tfm.encoder_specs(config)
    tokens = jax.device_put(np.int32(np.random.default_rng(0).integers(0, 60, (4, 16))))

    def loss(params, memory, tokens):
        _, memory = tfm.read_segment(params, config, tokens[:, :8], memory)
        hidden, memory = tfm.read_segment(params, config, tokens[:, 8:], memory, jax.random.key(3))
        return (hidden.astype(jnp.float32) ** 3).sum(), memory

    step = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (value, memory), gradient = step(params, tfm.segment_memory(config, 4, 6), tokens)
    mesh = tfm.make_mesh(*mesh_name)
    with jax.set_mesh(mesh):
        sharded = jax.device_put(params, tfm.shardings(specs, mesh))
        empty = tfm.segment_memory(config, 4, 6, mesh)
        batch = jax.device_put(tokens, NamedSharding(mesh, tfm.partition("BT", tokens.shape, mesh)))
        (mesh_value, mesh_memory), mesh_gradient = step(sharded, empty, batch)
    assert jax.tree.map(jax.typeof, mesh_memory) == jax.tree.map(jax.typeof, empty)
    np.testing.assert_allclose(mesh_value, value, rtol=1e-4)
    for leaf, reference in zip(
        jax.tree.leaves((mesh_memory, mesh_gradient)), jax.tree.leaves((memory, gradient)), strict=True
    ):
        scale = np.abs(np.asarray(reference)).max()
        np.testing.assert_allclose(leaf, reference, rtol=1e-3, atol=1e-3 * scale + 1e-5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "position=learned reads a text as one piece"),
        ({"position": "tupe"}, "try position=transformer_xl, rotary"),
        ({"mixer": "linear"}, "mixer=linear reads a text as one piece, not in segments with a memory; try mixer=softm"),
        ({"mixer.pattern": "local"} | XL, "mixer.pattern=local .* try mixer.pattern=full or sliding"),
        (XL | _layer(0, {"mixer": "gru"}) | {"period": 1}, "mixer=gru"),
    ],
)
def test_what_cannot_read_segments_says_so(values, message):
    with pytest.raises(ValueError, match=message):
        tfm.segment_memory(tfm.override(BASE, values), 2, 4)


def test_a_memory_holds_a_token_at_least():
    with pytest.raises(ValueError, match="size=0 tokens of memory must be at least 1"):
        tfm.segment_memory(tfm.override(BASE, XL), 2, 0)


def test_within_a_memory_windows_stay_narrow():
    narrow = _layer(1, {"mixer": "softmax", "mixer.pattern": "sliding", "mixer.pattern.window": 4, **XL})
    config = tfm.override(BASE, XL | {"period": 2} | narrow).within(9)
    assert [kind.mixer.pattern.window for kind in config.layer_plan.period] == [10, 4]
    assert dataclasses.replace(config.kinds[0].mixer.pattern, dilation=3).within(9).window == 4
